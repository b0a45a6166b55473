"""What a test that samples are of one law has found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from mpi_ustat.estimation.printed import as_text, learnt_rows, moved_text, p_equals, seconds_row, sizes_text
from mpi_ustat.numerics.types import Floats
from mpi_ustat.testing.several import Several
from mpi_ustat.wording import count_of, plural

QUANTILES = (0.5, 0.9, 0.95, 0.99)


def rests_text(rests: Sequence[int]) -> str:
    """Return what follows the blocks of a test in its table: how many points of each sample are in none."""
    joint = " and " if len(rests) == 2 else ", "
    return (
        f"; {joint.join(map(str, rests))} {plural(max(rests), 'point')} in no block keep their label"
        if any(rests)
        else ""
    )


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """What a test has found that two samples are of one law; the same on every rank.

    Attributes
    ----------
    value : float
        The discrepancy, as of `estimate` with `complete`: unbiased, and about 0 for samples of one law. Of several
        kernels, the largest studentised one, in the unit 1.
    p : float
        The share of labellings of the blocks whose value is as large: for samples of one law it is α or less with the
        probability α at most, for every α, size and law.
    n_permutations : int
        Labellings that were evaluated.
    exact : bool
        Whether these were all that there are. Otherwise they were drawn, and the one that is there counts beside them.
    relabelled : ndarray, shape (n_permutations,)
        Their values.
    sizes : tuple of int
        n and m.
    n_blocks : tuple of int
        Blocks of each sample.
    block_size : int
        Points in each block.
    rests : tuple of int
        Points of each sample that are in none, and never change their label.
    kernel : str
    kernel_options : dict
    learnt : dict
        What was taken from all points beforehand, whatever samples they are of: a bandwidth, scales of columns.
    seed : int
    unit : str
        Of the value.
    seconds : dict
        Of the phases, each on the rank that took longest.
    bytes_moved : int
        Bytes that went from one rank to another.
    n_ranks : int
    n_pairs : int
        Pairs of points that the value is made of.
    n_rounds, n_workers : int or None
        T and N, of a test by rounds; its value is the weighted mean of discrepancies of two workers that met
        (`mpi_ustat.testing.met`), and its labellings are those within workers.
    several : Several or None
        What each kernel has found, where an option has a list of values.
    """

    __test__: ClassVar[bool] = False  # for pytest, whom the name would make curious
    whom: ClassVar[str] = "both samples"

    value: float
    p: float
    n_permutations: int
    exact: bool
    relabelled: Floats = field(repr=False)
    sizes: tuple[int, ...]
    n_blocks: tuple[int, ...]
    block_size: int
    rests: tuple[int, ...]
    kernel: str
    kernel_options: dict[str, Any]
    learnt: dict[str, Any]
    seed: int
    unit: str
    seconds: dict[str, float] = field(repr=False)
    bytes_moved: int
    n_ranks: int
    n_pairs: int
    n_rounds: int | None = None
    n_workers: int | None = None
    several: Several | None = None

    def quantile(self, level: float) -> float:
        """Return the lowest relabelled value that a share of `level` of them does not exceed."""
        return float(np.quantile(self.relabelled, level, method="inverted_cdf"))

    @property
    def quantiles(self) -> dict[float, float]:
        """Those of `QUANTILES`."""
        return {level: self.quantile(level) for level in QUANTILES}

    def summary(self) -> dict[str, Any]:
        """Return everything but the relabelled values, as JSON can hold it; the value is called `estimate`."""
        apart = ("value", "relabelled", "several")
        found = {name: value for name, value in vars(self).items() if name not in apart}
        if self.several is not None:
            found["several"] = vars(self.several)
        return (
            {"estimate": self.value}
            | found
            | {"quantiles": {f"{level:g}": each for level, each in self.quantiles.items()}}
        )

    def rows(self, classes: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """Return the rows of the table; `classes` are names of the samples, where they have any."""
        how = "all" if self.exact else "random"
        joint = " and " if len(self.sizes) == 2 else ", "
        blocks = f"{joint.join(map(str, self.n_blocks))} blocks of {count_of(self.block_size, 'point')}"
        options = "".join(f", {name} {value}" for name, value in self.kernel_options.items())
        levels = ", ".join(f"{each:.6g} ({100 * level:g} %)" for level, each in self.quantiles.items())
        return [
            ("estimate", repr(self.value) + (", the largest studentised" if self.several else "")),
            ("test", f"that {self.whom} are of one law: p {p_equals(self.p)}"),
            *self._of_rounds(),
            ("permutations", f"{how} {self.n_permutations}, of {blocks}{rests_text(self.rests)}"),
            *([] if self.several is None else self.several.rows()),
            ("relabelled", levels),
            ("kernel", self.kernel + options),
            *learnt_rows(self.learnt),
            ("points", sizes_text(self.sizes, classes)),
            ("moved", moved_text(self.bytes_moved, self.n_ranks)),
            ("seed", str(self.seed)),
        ]

    def _of_rounds(self) -> list[tuple[str, str]]:
        if self.n_rounds is None:
            return []
        share = self.n_pairs / math.comb(sum(self.sizes), 2)
        met = count_of(self.n_pairs, "pair of points", "pairs of points")
        met += f" ({100 * share:.3g} %), of those of {self.n_workers} workers that met"
        return [("rounds", f"{self.n_rounds}: {met}; labels stay with their worker")]

    def __str__(self) -> str:
        """Return a short table."""
        return as_text([*self.rows(), seconds_row(self.seconds)])
