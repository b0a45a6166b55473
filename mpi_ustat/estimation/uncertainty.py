"""The error bars of an estimation: where its Hoeffding components come from, what speaks against a normal interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpi_ustat.complete import Complete
from mpi_ustat.estimation.aggregation import mean_of_workers, part_means
from mpi_ustat.estimation.estimates import Bias, ErrorBar, Round, biased_note
from mpi_ustat.estimation.problem import Problem
from mpi_ustat.estimation.records import weighted_means
from mpi_ustat.estimation.round_sums import pooled_means
from mpi_ustat.estimation.rounds import dof_of_blocks
from mpi_ustat.inference.components import from_swr_blocks
from mpi_ustat.inference.error_bars import Findings, bias, design_of, error_bar, expectation_factor, own_variance_notes
from mpi_ustat.inference.evidence import Evidence, block_dof, knows_more, mean_by_dof, of_blocks, on_average, redrawn
from mpi_ustat.inference.intervals import Disjoint, disjoint_tuples
from mpi_ustat.inference.judge import Projections, tails_matter
from mpi_ustat.inference.pilots import PILOT_ROWS, own_variance_of_pilot, pilot, projections
from mpi_ustat.kernels.kernel import Local
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import bounds_of
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.schemes.variance import Design

SHARDS_LEVEL = 0.01
"""Shards of one law are said to differ with this probability."""


@dataclass(frozen=True)
class Uncertainty:
    """What the rounds of an estimation tell about its error.  Its methods are collective."""

    problem: Problem
    rounds: Sequence[Round]

    @cached_property
    def design(self) -> Design:
        """How the estimate over the rounds is made."""
        return design_of(self.problem.config, self.problem.sizes, self.rounds)

    @cached_property
    def means(self) -> Floats:
        """The averages of the parts over all workers and rounds."""
        problem, comm = self.problem, self.problem.comm
        if problem.config.n_pairs is None:
            return pooled_means(problem.kernel, [each.sums for each in self.rounds])
        means = None
        with together(comm, "averaging over all workers and rounds"):
            if comm.rank == 0:  # which has what each worker found, whoever else has
                means = weighted_means([each.record for each in self.rounds if each.record is not None])
        return np.asarray(comm.bcast(means))

    @property
    def expectation_factor(self) -> float:
        """What the estimate's mean is the statistic times."""
        return expectation_factor(self.design, self.problem.sizes, self.problem.kernel.degrees)

    def of_rounds(self, value: Floats) -> ErrorBar:
        """Return the error bar of the estimate over the rounds."""
        problem, kernel, means = self.problem, self.problem.kernel, self.means
        notes, doubts = biased_note(self.expectation_factor), []
        components, method, evidence, first_order = None, "none", None, None
        if kernel.has_own_variance:
            of_pilot = own_variance_of_pilot(
                problem.comm, problem.exchanges, kernel, problem.streams, replicate=problem.replicate
            )
            if of_pilot is not None:
                found, evidence = of_pilot
                first_order = found.of_points
                doubts += own_variance_notes(found, problem.sizes, self.rounds)
        else:
            components, method, evidence = self._components()
        rows = problem.sizes if evidence is None else evidence.rows
        if problem.scheme.as_they_lie:
            projected = self._projections(problem.sizes)
            doubts += [] if projected is None else self._shards_differ(projected)
        elif first_order is not None:
            projected = self._projections(rows)
        else:
            projected = self._tails(components, means, rows)
        sampled = None
        if problem.config.n_pairs is not None:
            sampled = sum(each.sums.evaluations for each in self.rounds)
        known = Findings(
            means,
            components,
            method,
            evidence,
            spreads=[each.spread for each in self.rounds if each.spread is not None],
            projected=projected,
            names=problem.names,
            n_sampled=sampled,
            disjoint=self._disjoint(),
            first_order=first_order,
            notes=notes,
            doubts=doubts,
        )
        return error_bar(kernel, problem.sizes, self.design, value, known, problem.config)

    def of_complete(self, complete: Complete) -> ErrorBar:
        """Return the error bar of the complete statistic."""
        problem, kernel = self.problem, self.problem.kernel
        means = part_means(kernel, complete.local.sums)
        components, method, evidence = complete.local.components, "components", Evidence(problem.sizes)
        if components is None and complete.variance is None:
            components, method, evidence = self._of_pilot()
        if complete.first_order is not None:
            projected = self._projections(evidence.rows)
        else:
            projected = self._tails(components, means, evidence.rows)
        found = Findings(
            means,
            components,
            method,
            evidence,
            projected=projected,
            names=problem.names,
            disjoint=disjoint_tuples(kernel.degrees, [(size,) for size in problem.sizes]),
            variance=complete.variance,
            first_order=complete.first_order,
            notes=complete.notes,
        )
        design = design_of(problem.config, problem.sizes, ())
        return error_bar(kernel, problem.sizes, design, np.atleast_1d(complete.value), found, problem.config)

    def bias(self, complete: Complete) -> tuple[Bias, ...]:
        """Return how far the averages of shards as they lie are from U_n."""
        (of_round,), kernel = self.rounds, self.problem.kernel
        values = {"pooled": kernel.combine(self.means)}
        if not kernel.pooled_only:
            assert of_round.record is not None
            answers = of_round.record.answers
            values = {"mean": mean_of_workers(answers.values, answers.has_pairs)} | values
        found = Findings(part_means(kernel, complete.local.sums), complete.local.components)
        return bias(kernel, self.problem.sizes, self.design, values, complete.value, found)

    def _components(self) -> tuple[Floats | None, str, Evidence | None]:
        """Return the Hoeffding components of the whole, where they come from and what from.

        They come from all that was evaluated, unless a pilot knows them much better. After the last round of a
        rotation, which has U_n, they come from where the complete statistic has them, but for kernels that would have
        to look at all pairs again: of these, the blocks' tell nearly as much.
        """
        problem, kernel, scheme = self.problem, self.problem.kernel, self.problem.scheme
        if self._has_met_all and not kernel.route(problem.sizes).by_tuples:
            return problem.complete(components=True).local.components, "components", Evidence(problem.sizes)
        known = [
            (each.components, told)
            for t, each in enumerate(self.rounds)
            if each.components is not None
            and (told := of_blocks(dof_of_blocks(problem, t, each.sizes), each.sizes)) is not None
        ]
        if known:
            rows, blocks = self._pilot_rows, on_average([told for _, told in known])
            if scheme.with_replacement:
                blocks = redrawn(blocks, problem.sizes)
            whole = self._has_met_all and rows == problem.sizes  # the complete statistic's, at the price of a pilot
            better = whole or knows_more(block_dof(kernel.degrees, rows), blocks.dof)
            if not kernel.finds_components(rows) or not better:
                local = mean_by_dof(np.array([each for each, _ in known]), np.array([told.dof for _, told in known]))
                if scheme.with_replacement:
                    local = from_swr_blocks(local, problem.sizes)
                return local, "components", blocks
        return self._of_pilot()

    @property
    def _has_met_all(self) -> bool:
        """Whether the rounds of a rotation have evaluated every tuple."""
        problem, config = self.problem, self.problem.config
        most = problem.scheme.n_rounds_complete(problem.kernel.degrees, config.n_workers)
        return config.n_pairs is None and config.aggregate == "pooled" and most == len(self.rounds)

    @property
    def _pilot_rows(self) -> tuple[int, ...]:
        return tuple(min(size, PILOT_ROWS) for size in self.problem.sizes)

    def _of_pilot(self) -> tuple[Floats | None, str, Evidence]:
        """Return the same as `_components`, from a pilot."""
        kernel, rows = self.problem.kernel, self._pilot_rows
        dof = () if rows == self.problem.sizes else block_dof(kernel.degrees, rows)
        if self._pilot is None:
            return None, "pilot", Evidence(rows, dof)
        means = tuple(part_means(kernel, self._pilot.sums).tolist())
        return self._pilot.components, "pilot", Evidence(rows, dof, means)

    @cached_property
    def _pilot(self) -> Local | None:
        """What a pilot gives, if the kernel has components."""
        problem = self.problem
        if not problem.kernel.finds_components(self._pilot_rows):
            return None
        return pilot(problem.comm, problem.exchanges, problem.kernel, problem.streams, replicate=problem.replicate)

    def _projections(self, rows: Sequence[int]) -> Projections | None:
        """Return the projections by which intervals are judged, on up to so many points."""
        problem = self.problem
        return projections(
            problem.comm, problem.exchanges, problem.kernel, problem.streams, most=rows, replicate=problem.replicate
        )

    def _tails(self, components: Floats | None, means: Floats, rows: Sequence[int]) -> Projections | None:
        """Return the projections by which tails are judged, if they can matter."""
        kernel, sizes = self.problem.kernel, self.problem.sizes
        if components is None or not tails_matter(kernel, components, kernel.gradient(means), sizes, rows):
            return None
        return self._projections(rows)

    def _disjoint(self) -> Disjoint | None:
        """Return the disjoint tuples in one round's blocks, which must be of different points."""
        if self.problem.scheme.with_replacement:
            return None
        degrees, n_pairs = self.problem.kernel.degrees, self.problem.config.n_pairs
        kinds = {id(each.sizes): each.sizes for each in self.rounds}
        return max(disjoint_tuples(degrees, each, n_pairs) for each in kinds.values())

    def _shards_differ(self, projected: Projections) -> list[str]:
        """Return the sentence about shards that differ from each other by more than chance, if they do."""
        if self.problem.config.n_workers == 1:
            return []
        bounds = [bounds_of(of_sample) for of_sample in self.rounds[0].sizes]
        chance = projected.differ(self.problem.kernel.gradient(self.means), bounds)
        if chance >= SHARDS_LEVEL:
            return []
        return [
            f"the shards differ by more than chance (p = {chance:.1g}): an average of their values is not the "
            f'statistic of all points; use complete=True, or scheme="{DEFAULT_SCHEME}"'
        ]
