"""What all workers found in a round, as arrays in worker order: made at the workers, gathered by all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from mpi_ustat.estimation.aggregation import local_values, n_statistics
from mpi_ustat.estimation.evaluation import Evaluation
from mpi_ustat.kernels.kernel import Kernel, PairSum, Total
from mpi_ustat.mpi.collectives import add_integers, gather_known, largest_integers
from mpi_ustat.mpi.runtime import AFTER, agree, entering
from mpi_ustat.numerics import wholes
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.schemes.partition import block_bounds

_FEW_NUMBERS = 64  # of components, which are laid side by side: many take too much memory


@dataclass(frozen=True, eq=False)
class Answers:
    """What workers found: of every worker, or of those of one rank.

    Attributes
    ----------
    totals : ndarray of int64, shape (words, N, p)
        The sums of kernel values of the p parts that are whole numbers (`numerics.wholes`); 0 for others.
    reals : ndarray, shape (N, p)
        Those that are doubles; 0 for others.
    is_real : ndarray of bool, shape (N, p)
        Which they are.
    n_pairs : ndarray of int64, shape (words, N, p)
        Pairs (or longer tuples) that the sums are over.
    weights : ndarray of int64, shape (words, N)
        Pairs that the workers' points make.
    evaluations : ndarray of int64, shape (words, N)
        Pairs that were evaluated.
    combined : ndarray, shape (N, q) or (N, 0)
        Local values of kernels that combine averages of parts; nothing of the others, whose values the averages are.
    scale : int
        The kernel's, which sums are multiplied by.
    """

    totals: Ints
    reals: Floats
    is_real: Flags
    n_pairs: Ints
    weights: Ints
    evaluations: Ints
    combined: Floats
    scale: int

    @cached_property
    def has_pairs(self) -> Flags:
        """Which workers' points make a pair, (N,)."""
        return np.asarray(self.weights.any(axis=0))

    @property
    def sums(self) -> tuple[tuple[PairSum, ...], ...]:
        """Each worker's sums, by part, as objects."""
        n_parts = self.reals.shape[1]
        totals, n_pairs = (wholes.integers(each.reshape(len(each), -1)) for each in (self.totals, self.n_pairs))
        kinds = zip(self.is_real.ravel().tolist(), self.reals.ravel().tolist(), totals, n_pairs, strict=True)
        parts = [PairSum(real if is_real else whole, count) for is_real, real, whole, count in kinds]
        return tuple(tuple(parts[i : i + n_parts]) for i in range(0, len(parts), n_parts))

    @cached_property
    def part_means(self) -> Floats:
        """The averages of the parts, (N, p): quotients of whole numbers correctly rounded; NaN over no pair."""
        shape = self.reals.shape
        totals, n_pairs = (each.reshape(len(each), -1) for each in (self.totals, self.n_pairs))
        means = wholes.quotients(totals, n_pairs, self.scale).reshape(shape)
        if self.is_real.any():
            found = self.is_real & ~np.isnan(means)
            counts = self.n_pairs[:, found]
            if len(counts) == 1 and counts.max(initial=0) < 2**63 // self.scale:
                means[found] = self.reals[found] / (self.scale * counts[0])
            else:
                pairs = zip(self.reals[found].tolist(), wholes.integers(counts), strict=True)
                means[found] = [real / (self.scale * count) for real, count in pairs]
        return means

    @cached_property
    def values(self) -> Floats:
        """Local values, (N, q); NaN where there was no pair."""
        if self.combined.shape[1]:
            return self.combined
        missing = np.isnan(self.part_means).any(axis=1, keepdims=True)
        return np.where(missing, np.nan, self.part_means)


@dataclass(frozen=True, eq=False)
class Found:
    """Answers, and what else comes with them that is not kept.

    Attributes
    ----------
    answers : Answers
    components : sequence of N ndarrays, shape (c, p, p)
        Estimates of the Hoeffding components, 0 where there are none.
    has_components : ndarray of bool, shape (N,)
    multiplicities : ndarray of int64, shape (words, N, 4) or (words, N, 0)
        Of blocks of one sample drawn with replacement: `one_sample.multiplicity_sums`.
    """

    answers: Answers
    components: Sequence[Floats] | Floats
    has_components: Flags
    multiplicities: Ints

    def components_of(self, workers: Flags) -> Sequence[Floats] | Floats:
        """Return those of some workers."""
        if workers.all():
            return self.components
        if isinstance(self.components, np.ndarray):
            return self.components[workers]
        return [self.components[i] for i in np.flatnonzero(workers).tolist()]


def found_by(kernel: Kernel, workers: Sequence[Evaluation]) -> Found:
    """Return the workers' results as arrays; pure.

    Raises
    ------
    UserError
        What `Kernel.combine` raises of values that it can't be taken of.
    """
    n, n_parts = len(workers), kernel.n_parts
    sums: list[PairSum] = []
    n_tuples: list[int] = []
    multiplicities: list[int] = []
    components, has_components = [], np.zeros(n, dtype=bool)
    for i, (local, count, of_block) in enumerate(workers):  # once: objects of many workers are far from each other
        sums += local.sums
        n_tuples.append(count)
        if local.components is not None:
            components.append(local.components)
            has_components[i] = True
        if of_block is not None:
            multiplicities += of_block
    found, counts = tuple(zip(*sums, strict=True)) or ((), ())
    totals, reals, is_real = _by_kind(found)
    n_pairs = wholes.words_of(counts)
    of_parts = n_pairs.reshape(len(n_pairs), n, n_parts)
    evaluations = of_parts[:, :, 0]
    if type(kernel).evaluations is not Kernel.evaluations:
        evaluations = wholes.words_of([kernel.evaluations(each.local.sums) for each in workers])
    answers = Answers(
        totals=totals.reshape(len(totals), n, n_parts),
        reals=reals.reshape(n, n_parts),
        is_real=is_real.reshape(n, n_parts),
        n_pairs=of_parts,
        weights=wholes.words_of(n_tuples),
        evaluations=evaluations,
        combined=_combined(kernel, [each.local.sums for each in workers]),
        scale=kernel.scale,
    )
    words, n_each = wholes.words_of(multiplicities), len(multiplicities) // max(n, 1)
    return Found(
        answers,
        _of_all(components, has_components),
        has_components,
        words.reshape(len(words), n, n_each),
    )


def _by_kind(totals: Sequence[Total]) -> tuple[Ints, Floats, Flags]:
    """Return sums as words of those that are whole numbers, as doubles of the others, and which these are."""
    kinds = set(map(type, totals))
    whole = {kind for kind in kinds if issubclass(kind, int | np.integer)}
    if whole == kinds:
        numbers = wholes.words_of(cast("Sequence[int]", totals) if kinds <= {int} else list(map(int, totals)))
        return numbers, np.zeros(len(totals)), np.zeros(len(totals), dtype=bool)
    is_real = [type(each) not in whole for each in totals]
    words = wholes.words_of([0 if real else int(each) for each, real in zip(totals, is_real, strict=True)])
    reals = [each if real else 0.0 for each, real in zip(totals, is_real, strict=True)]
    return words, np.array(reals, dtype=np.float64), np.array(is_real, dtype=bool)


def _of_all(components: Sequence[Floats], has: Flags) -> Sequence[Floats] | Floats:
    """Return the components of all workers, 0 of those that have none; as one array, unless they are large."""
    shape = components[0].shape if components else (0, 0, 0)
    if math.prod(shape) > _FEW_NUMBERS:
        each, none = iter(components), np.zeros(shape)
        return [next(each) if known else none for known in has.tolist()]
    if not components:
        return np.zeros((len(has), *shape))
    known = np.concatenate(components).reshape(-1, *shape)
    if has.all():
        return known
    found = np.zeros((len(has), *shape))
    found[has] = known
    return found


def _combined(kernel: Kernel, sums: Sequence[tuple[PairSum, ...]]) -> Floats:
    """Return `local_values` of all workers, (n, q), of kernels that combine their parts; otherwise nothing, (n, 0)."""
    if type(kernel).combine is Kernel.combine or kernel.n_parts == 1:
        return np.empty((len(sums), 0))
    return np.array([local_values(kernel, each) for each in sums]).reshape(len(sums), n_statistics(kernel))


def gathered(
    comm: Any, error: BaseException | None, found: Found | None, moved: Ints, n_workers: int, *, doing: str
) -> tuple[Found, Ints]:
    """Return all workers' results, on every rank, and the sums of what was moved; or the error of a rank on all.

    Collective. A rank sends a row of 64-bit words for each of its workers, and none makes an object of another's.

    Raises
    ------
    UserError, KeyboardInterrupt
        As `agree`, of what goes wrong in the data.
    """
    if comm.size > 1:
        entering(f"{AFTER}{doing}")
        failed, n_words, n_multiplicities, *shape = largest_integers(comm, _layout(error, found)).tolist()
        if not failed and found is not None:
            rows, widths = _packed(found, n_words, n_multiplicities, tuple(shape))
            counts = np.diff(block_bounds(n_workers, comm.size)) * rows.shape[1]
            everyone = gather_known(comm, rows.view(np.float64).ravel(), counts).view(np.int64)
            parts = np.split(everyone.reshape(n_workers, -1), np.cumsum(widths)[:-1], axis=1)
            parts = [np.ascontiguousarray(each) for each in parts]
            return _unpacked(parts, n_words, tuple(shape), found.answers.scale), add_integers(comm, moved)
    agree(comm, error, doing=doing, of_data=True)
    assert found is not None
    return found, moved


def _layout(error: BaseException | None, found: Found | None) -> Ints:
    """Return whether something failed here, and what a row of words must hold, of which all ranks take the most."""
    if error is not None or found is None:
        return np.array([1, 0, 0, 0, 0, 0])
    a = found.answers
    n_words = max(map(len, (a.totals, a.n_pairs, a.weights, a.evaluations, found.multiplicities)))
    shape = found.components[0].shape if found.has_components.any() else (0, 0, 0)
    return np.array([0, n_words, found.multiplicities.shape[2], *shape])


def _packed(found: Found, n_words: int, n_multiplicities: int, shape: tuple[int, ...]) -> tuple[Ints, list[int]]:
    """Return a row of words for each worker, and how many there are of each kind."""
    a, n = found.answers, len(found.has_components)
    multiplicities = found.multiplicities
    components = found.components if found.has_components.any() else np.zeros((n, *shape))
    if multiplicities.shape[2] != n_multiplicities:  # of a rank without workers
        multiplicities = np.zeros((1, n, n_multiplicities), dtype=np.int64)
    numbers = (a.totals, a.n_pairs, a.weights[:, :, None], a.evaluations[:, :, None], multiplicities)
    doubles = (a.reals, a.combined, np.asarray(components).reshape(n, *shape))
    parts = [wholes.widened(each, n_words).transpose(1, 0, 2).reshape(n, n_words * each.shape[2]) for each in numbers]
    parts += [a.is_real.astype(np.int64), found.has_components[:, None].astype(np.int64)]
    parts += [each.reshape(n, math.prod(each.shape[1:])).view(np.int64) for each in doubles]
    return np.concatenate(parts, axis=1), [each.shape[1] for each in parts]


def _unpacked(parts: list[Ints], n_words: int, shape: tuple[int, ...], scale: int) -> Found:
    numbers = (np.ascontiguousarray(each.reshape(len(each), n_words, -1).transpose(1, 0, 2)) for each in parts[:5])
    totals, n_pairs, weights, evaluations, multiplicities = numbers
    is_real, has_components = (each.astype(bool) for each in parts[5:7])
    reals, combined, components = (each.view(np.float64) for each in parts[7:])
    answers = Answers(totals, reals, is_real, n_pairs, weights[:, :, 0], evaluations[:, :, 0], combined, scale)
    return Found(answers, components.reshape(len(components), *shape), has_components[:, 0], multiplicities)
