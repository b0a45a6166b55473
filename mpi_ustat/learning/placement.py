"""Bringing the rows of a descent to the workers that pair them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.learning.state import Layout, Placement, State
from mpi_ustat.learning.training import Training
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.schemes.partition import Blocks, Ordered, bounds_of
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.wording import plural


def placed(training: Training, state: State) -> State:
    """Return the state with the rows here of the round that its iteration belongs to.  Collective."""
    every, iteration, before = training.config.repartition_every, state.iteration, state.placement
    wanted = 0 if every is None else iteration // every
    if before is not None and before.round == wanted:
        return state
    resumed = before is None and iteration > 0
    again = resumed and (every is None or iteration % every > 0)  # what was counted before
    if resumed and not again and training.partition is not None and training.goes_on:
        for exchange, each, sparse in zip(
            training.exchanges, training.partition.round(wanted - 1), training.sparse, strict=True
        ):
            if not sparse:
                exchange.bring(each)  # to where the round before had them, as it matters what moves from there
    blocks = training.holdings(wanted)
    bounds = [partition.bounds for partition in blocks]
    layout = None if before is None else before.layout
    if layout is None or any(a is not b for a, b in zip(layout.bounds, bounds, strict=True)):
        layout = _lay_out(training, bounds)
    n_bytes, n_rows = _moved(training)
    placement = Placement(wanted, layout, _bring(training, blocks, layout, iteration, wanted))
    if again:
        return replace(state, placement=placement)
    bytes_after, rows_after = _moved(training)
    return State(
        iteration,
        state.parameters,
        state.velocity,
        state.stopped,
        state.bytes_moved + bytes_after - n_bytes,
        state.bytes_reduced,
        state.rows_moved + rows_after - n_rows,
        state.empty_workers + layout.n_empty,
        placement,
    )


def points_at(training: Training, placement: Placement, k: int, places: Ints) -> Floats:
    """Return this rank's points at these places of a sample's blocks."""
    if k in placement.of_pairs:
        return placement.of_pairs[k]
    workers, layout = training.workers, placement.layout
    if training.pairs.workers != workers:
        first = np.searchsorted(layout.drawn_for, [workers.start, workers.stop])
        places = places[first[0] : first[1]] - layout.bounds[k][workers.start]
    return training.exchanges[k].rows_at(places.ravel())


def _bring(
    training: Training, blocks: Sequence[Blocks], layout: Layout, iteration: int, round_: int
) -> dict[int, Floats]:
    """Bring the rows of a round here; return those of samples of which only the iteration's pairs are brought."""
    of_pairs = {}
    places = training.pairs.of_iteration(0, iteration, round_, layout) if any(training.sparse) else ()
    for k, (exchange, partition) in enumerate(zip(training.exchanges, blocks, strict=True)):
        if training.sparse[k] and isinstance(partition, Ordered) and partition.order is not None:
            order = partition.order.take(places[training.pairings[0].index(k)].ravel(), mode="clip")
            exchange.bring(Ordered(layout.bounds_of_pairs, order))
            of_pairs[k] = exchange.put_in_order()
        else:
            exchange.bring(partition)
    return of_pairs


def _moved(training: Training) -> tuple[int, int]:
    """Return the bytes and rows that this rank's exchanges have moved."""
    n_bytes = n_rows = 0
    for each in training.exchanges:
        n_bytes += each.bytes_sent
        n_rows += each.rows_moved
    return n_bytes, n_rows


def _lay_out(training: Training, bounds: list[Ints]) -> Layout:
    """Find the workers that have pairs."""
    empty = training.config.empty
    sizes = np.array([np.diff(each) for each in bounds])
    n_pairs = np.array([sizes[a] * sizes[b] for a, b in training.pairings])
    useful: Flags = np.all(n_pairs > 0, axis=0)
    n_useful = int(np.count_nonzero(useful))
    if n_useful < len(useful) and empty == "refuse":
        without = len(useful) - n_useful
        raise UserError(
            f"{without} of {len(useful)} workers {plural(without, 'has', 'have')} no pair (the first is worker "
            f'{int(np.argmin(useful))}): use scheme="{DEFAULT_SCHEME}", fewer workers, or empty="skip" or "zero"'
        )
    if not n_useful:
        raise UserError(f'no worker has a pair: use scheme="{DEFAULT_SCHEME}" or fewer workers')
    hosted, drawn_for = (useful[some.start : some.stop] for some in (training.workers, training.pairs.workers))
    return Layout(
        bounds,
        sizes,
        n_contributing=len(useful) if empty == "zero" else n_useful,
        n_empty=len(useful) - n_useful,
        useful=np.flatnonzero(hosted),
        drawn_for=np.flatnonzero(drawn_for),
        bounds_of_pairs=bounds_of(useful * (training.config.batch_pairs or 0)),
    )
