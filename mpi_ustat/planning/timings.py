"""Short measurements of this job: seconds of rounds, of blocks of pairs, of complete statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from mpi_ustat.complete.timing import LONG_ENOUGH, REPEATS, slowest, some, timed_parts
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.inference.evidence import Evidence
from mpi_ustat.inference.judge import Judge
from mpi_ustat.inference.pilots import PILOT_ROWS, pilot, projections
from mpi_ustat.kernels.blocks import mean, sampled_sums
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.tuples import sample_tuples
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.registry import scheme_of

PLAN_ROWS = 1000
"""Rows of each sample in the pilot: they give a standard error to 2 or 3 %, and a million pairs."""


class Timings:
    """Times rounds, blocks and complete statistics, each when it is asked for.  All methods are collective."""

    def __init__(self, comm: Any, samples: Sequence[Floats], config: EstimateConfig, kernel: Kernel | None) -> None:
        self._comm, self._samples, self._config = comm, samples, config
        self._problem = set_up(comm, samples, config, kernel=kernel)
        self.kernel, self.sizes = self._problem.kernel, self._problem.sizes
        self._rounds: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._evaluations: dict[int | None, float] = {}

    def pilot_judge(self) -> tuple[Judge, float]:
        """Return the judge of the pilot's components, and the statistic's value in the pilot."""
        problem, kernel = self._problem, self.kernel
        local = pilot(self._comm, problem.exchanges, kernel, problem.streams, most=PLAN_ROWS)
        found = local.components
        if found is None or kernel.degrees not in ((2,), (1,) * len(kernel.degrees)):
            raise UserError(
                f"the variance of the kernel {kernel.name} has no closed form to plan with: run it with complete=True, "
                "whose error bar says what it gives"
            )
        means = np.array([mean(each, kernel.scale) for each in local.sums])
        gradient = kernel.gradient(means)
        if len(gradient) > 1:
            raise UserError("a plan is for one statistic: choose one column")
        rows = self.pilot_sizes()
        projected = projections(self._comm, problem.exchanges, kernel, problem.streams, most=rows)
        judge = Judge(kernel, self.sizes, found, Evidence(rows), projected, problem.names, None, gradient)
        return judge, float(kernel.combine(means)[0])

    def pilot_sizes(self) -> tuple[int, ...]:
        """Return the rows of each sample in the pilot."""
        return tuple(min(size, PLAN_ROWS) for size in self.sizes)

    def cost(
        self, scheme: str, move: str, n_rounds: int, n_pairs: int | None, measured: dict[str, float]
    ) -> tuple[float, float]:
        """Return predicted seconds and bytes; note in `measured` what was timed."""
        if scheme_of(scheme).all_pairs:
            seconds, moved = self._time_complete()
            measured[scheme] = seconds
            return seconds + self._tails_seconds, moved
        first, later, moved = self._time_rounds(scheme, move)
        evaluation = self._time_evaluation(n_pairs)
        label = scheme_of(scheme).way(move)
        measured[f"{label}: first round"], measured[f"{label}: next round"] = first, later
        measured[f"evaluation, {'all' if n_pairs is None else n_pairs} pairs"] = evaluation
        error_bar = self._tails_seconds + (0.0 if n_pairs is None else self._pilot_seconds)
        return first + (n_rounds - 1) * later + n_rounds * evaluation + error_bar, n_rounds * moved

    def _time_rounds(self, scheme: str, move: str) -> tuple[float, float, float]:
        """Return the seconds of the first and of a later round without evaluation, and a later round's bytes."""
        if (scheme, move) not in self._rounds:
            of = scheme_of(scheme)
            aggregate = "pooled" if of.aggregate == "pooled" else self._config.aggregate
            config = replace(self._config, scheme=scheme, move=move, aggregate=aggregate, n_pairs=1, stderr=False)
            estimation = Estimation(set_up(self._comm, self._samples, config, kernel=self.kernel))
            most = of.n_rounds_complete(self.kernel.degrees, config.n_workers) or REPEATS + 1
            seconds, moved = [], 0.0
            for _ in range(min(REPEATS + 1, most)):
                seconds.append(self._slowest(estimation.step, repeats=1))
                moved = float(estimation.state.rounds[-1].bytes_moved)
            later = float(np.median(seconds[1:])) if len(seconds) > 1 else seconds[0]
            self._rounds[scheme, move] = seconds[0], later, moved
        return self._rounds[scheme, move]

    def _time_evaluation(self, n_pairs: int | None) -> float:
        """Return the seconds of a round's evaluation by the rank that hosts most workers."""
        if n_pairs not in self._evaluations:
            exchanges, n_workers = self._problem.exchanges, self._config.n_workers
            hosted = int(np.diff(block_bounds(n_workers, self._comm.size)).max())
            blocks = [
                some(exchange.rows, size // n_workers) for exchange, size in zip(exchanges, self.sizes, strict=True)
            ]
            one = self._time_block(blocks) if n_pairs is None else self._time_sampled(blocks, n_pairs)
            self._evaluations[n_pairs] = hosted * one
        return self._evaluations[n_pairs]

    def _time_block(self, blocks: Sequence[Floats]) -> float:
        """Return the seconds of all pairs of such blocks; of large ones by extrapolation from smaller ones."""
        run = self.kernel.local if self._config.stderr else self.kernel.block_sums
        whole, known = [len(block) for block in blocks], []
        size = 64
        while True:
            parts = [block[: min(size, len(block))] for block in blocks]
            seconds = self._slowest(lambda parts=parts: run(*parts))  # type: ignore[misc]
            known.append((float(sum(map(len, parts))), seconds))
            if all(len(part) == n for part, n in zip(parts, whole, strict=True)):
                return seconds
            if seconds > LONG_ENOUGH:
                break
            size *= 2
        return _extrapolated(known, float(sum(whole)))

    def _time_sampled(self, blocks: Sequence[Floats], n_pairs: int) -> float:
        stream = self._problem.streams.open("plan")

        def draw() -> None:
            lengths = [len(block) for block in blocks]
            sampled_sums(self.kernel, blocks, sample_tuples(stream, lengths, self.kernel.degrees, n_pairs))

        return self._slowest(draw)

    @cached_property
    def _pilot_seconds(self) -> float:
        problem = self._problem
        return self._slowest(lambda: pilot(self._comm, problem.exchanges, self.kernel, problem.streams))

    @cached_property
    def _tails_seconds(self) -> float:
        """The seconds in which every error bar looks for heavy tails."""
        problem, most = self._problem, [min(size, PILOT_ROWS) for size in self.sizes]
        return self._slowest(
            lambda: projections(self._comm, problem.exchanges, self.kernel, problem.streams, most=most), repeats=1
        )

    def _time_complete(self) -> tuple[float, float]:
        """Return seconds and bytes of the complete statistic, extrapolated from a part of the rows of each rank."""
        problem, n_workers = self._problem, self._config.n_workers
        known = []
        for part in timed_parts(
            self._comm, problem.exchanges, self.kernel, problem.streams, lambda sizes: n_workers, smallest=256
        ):
            known.append(part)
            if part.seconds > 5 * LONG_ENOUGH:
                break
        last = known[-1]
        return _extrapolated([(each.share, each.seconds) for each in known], 1.0), last.bytes_moved / last.share

    def _slowest(self, run: Callable[[], Any], repeats: int = REPEATS) -> float:
        """Return the median over repeats of the slowest rank's seconds."""
        return slowest(self._comm, self.kernel, run, repeats)


def _extrapolated(known: Sequence[tuple[float, float]], size: float) -> float:
    """Return the seconds at a size from (size, seconds) of smaller ones: by the last two's power, between 1 and 2."""
    power = 1.0
    if len(known) > 1:
        (before, shorter), (after, longer) = known[-2:]
        power = min(2.0, max(1.0, math.log(longer / shorter) / math.log(after / before)))
    largest, seconds = known[-1]
    return seconds * (size / largest) ** power
