"""What one worker finds in a round: sums of the kernel over all tuples of its blocks, or over sampled ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.kernels.blocks import add, sums_in_parts
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Points, n_tuples
from mpi_ustat.kernels.tuples import sample_tuples
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.types import Ints
from mpi_ustat.schemes.one_sample import multiplicity_sums
from mpi_ustat.schemes.registry import scheme_of

_PART = 1 << 22  # pairs drawn at a time, 64 MiB of places: a multiple of the chunks of `ustat.sums_in_parts`


class Evaluation(NamedTuple):
    """What a worker found."""

    local: Local
    n_tuples: int
    """Tuples that its points make, of which it may have sampled some."""
    multiplicities: tuple[int, int, int, int] | None = None
    """Of a block of one sample drawn with replacement: `one_sample.multiplicity_sums` of its rows."""


def evaluate(
    kernel: Kernel,
    config: EstimateConfig,
    blocks: Sequence[Points],
    draws: Callable[[], Any],
    *,
    across: bool = False,
    ids: Ints | None = None,
) -> Evaluation:
    """Return a worker's sums over its blocks; pure.

    Parameters
    ----------
    config : EstimateConfig
        Says which tuples, and whether components are wanted.
    blocks : sequence of ndarray
        One of every sample; of one sample in rotation, the rows at home and the visiting ones that meet.
    draws : callable
        Opens the worker's stream of random numbers (`numerics.rng.Stream`), where tuples are sampled.
    across : bool
        Whether the blocks are two of one sample, whose pairs across them are meant.
    ids : ndarray of int64, optional
        Row numbers of a block of one sample drawn with replacement, in which pairs of a row with itself don't count.
    """
    degrees, lengths = (1, 1) if across else kernel.degrees, [len(block) for block in blocks]
    count, multiplicities = n_tuples(degrees, lengths), None
    if ids is not None:
        multiplicities = multiplicity_sums(ids)
        count = (multiplicities[0] ** 2 - multiplicities[1]) // 2
    components = None
    if count == 0:
        sums = (PairSum(0, 0),) * kernel.n_parts
    elif config.n_pairs is not None and not (config.distinct and config.n_pairs >= count):
        if ids is not None:
            places = iter([_different_rows(draws(), ids, config.n_pairs)])
        elif tuple(degrees) == (1, 1) and not config.distinct:
            places = draws().pairs_in_parts(*lengths, config.n_pairs, _PART, announced)
        else:
            places = iter([sample_tuples(draws(), lengths, degrees, config.n_pairs, distinct=config.distinct)])
        sums = sums_in_parts(kernel, blocks, places, degrees)
    elif across:
        sums, components = (
            kernel.cross_local(*blocks)
            if _wants_components(kernel, config)
            else Local(kernel.cross_sums(*blocks), None)
        )
    elif ids is not None:
        sums = _without_copies(kernel, blocks[0], ids)
    elif kernel.chunk:
        chunks = announced(range(kernel.n_chunks(lengths)))
        sums = (PairSum(add(kernel.chunk_sums(blocks, chunks)), count),)
    elif _wants_components(kernel, config):
        sums, components = kernel.local(*blocks)
    else:
        sums = kernel.block_sums(*blocks)
    return Evaluation(Local(sums, components), count, multiplicities)


def _wants_components(kernel: Kernel, config: EstimateConfig) -> bool:
    """Tell whether blocks, all of whose tuples are evaluated, are to estimate the Hoeffding components of the whole."""
    if scheme_of(config.scheme).with_replacement and len(kernel.degrees) != 2:
        return False
    return config.stderr and config.n_pairs is None and kernel.worth_components(config.n_workers * config.n_rounds)


def _without_copies(kernel: Kernel, block: Points, ids: Ints) -> tuple[PairSum, ...]:
    """Return the sums over all pairs of a block drawn with replacement, but those of a row with itself."""
    _, first, counts = np.unique(ids, return_index=True, return_counts=True)
    # By `block_sums` too: a similarity at a threshold must be rounded in the same way.
    copies = [
        kernel.block_sums(np.repeat(block[place : place + 1], count, axis=0))
        for place, count in zip(first.tolist(), counts.tolist(), strict=True)
        if count > 1
    ]
    return tuple(
        PairSum(add([whole.total, *(-each.total for each in own)]), whole.n_pairs - sum(each.n_pairs for each in own))
        for whole, *own in zip(kernel.block_sums(block), *copies, strict=True)
    )


def _different_rows(draws: Any, ids: Ints, size: int) -> tuple[Ints, ...]:
    """Draw places of pairs of different rows of a block in which rows may occur several times."""
    i, j = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    while len(i) < size:
        a, b = sample_tuples(draws, (len(ids),), (2,), size)
        differ = ids[a] != ids[b]
        i, j = np.concatenate([i, a[differ]]), np.concatenate([j, b[differ]])
    return i[:size], j[:size]
