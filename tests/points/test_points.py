"""Points that no double equals are refused wherever points enter; columns of data frames are paired by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from mpi_ustat import estimate, estimate_samples, learn
from mpi_ustat.errors import UserError
from mpi_ustat.learning.learn import learn_samples
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.points.rows import column_names

SERIAL = SerialComm()
BIG = 2**53
wide = np.dtype(np.longdouble).itemsize > 8 and np.finfo(np.longdouble).nmant > 52
needs_wide = pytest.mark.skipif(not wide, reason="long doubles are doubles here")


class Frame:
    """What data frames have in common: columns with names, each of a type of its own, that NumPy makes one array of."""

    def __init__(self, **columns: Any) -> None:
        self._columns = {name: np.asarray(column) for name, column in columns.items()}
        self.columns = list(columns)
        self.shape = (len(next(iter(self._columns.values()))), len(columns))

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        return iter(self._columns.items())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:  # the name of a test, the same in every process
        return f"Frame({', '.join(self.columns)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.column_stack(list(self._columns.values())).astype(dtype)


def energy(rows: Any) -> None:
    estimate(SERIAL, rows, np.zeros((2, 2)), "energy", complete=True)


def descent(rows: Any) -> None:
    learn(SERIAL, np.zeros((2, 2)), rows, iterations=1, n_workers=1)


def test_set(rows: Any) -> None:
    learn(SERIAL, np.ones((2, 2)), np.zeros((2, 2)), x_test=rows, z_test=np.zeros((2, 2)), iterations=1, n_workers=1)


def fit(rows: Any) -> None:
    pytest.importorskip("sklearn")
    from mpi_ustat import PairwiseRanker

    PairwiseRanker(iterations=1).fit(rows, [0, 1])


def scores(rows: Any) -> None:
    pytest.importorskip("sklearn")
    from mpi_ustat import PairwiseRanker

    PairwiseRanker(iterations=1).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]).decision_function(rows)


test_set.__test__ = False  # type: ignore[attr-defined]
ENTRIES = [energy, descent, test_set, fit, scores]


@pytest.mark.parametrize("enter", ENTRIES)
@pytest.mark.parametrize(
    "rows",
    [
        np.array([[BIG, 0], [BIG + 1, 0]]),
        np.array([[BIG + 1, 0], [0, 2**64 - 1]], dtype=np.uint64),
        [[BIG, 0], [BIG + 1, 0]],
        [[BIG, 0.5], [BIG + 1, 0.5]],  # NumPy makes doubles of all
        ([0.5, 1], [2, -BIG - 1]),
        [np.array([0.5, 1.0]), np.array([0, BIG + 1])],
        Frame(a=[BIG, BIG + 1], b=[0.5, 1.5]),
        Frame(a=[0.5, 1.5], b=np.array([0, 2**64 - 1], dtype=np.uint64)),
        pytest.param(np.array([[1, 2], [3, 1]]) + np.longdouble(2) ** -60, marks=needs_wide),
        pytest.param([[np.longdouble(1) + np.longdouble(2) ** -60, 0], [1, 0.5]], marks=needs_wide),
        pytest.param(np.array([[1, 2], [3, np.longdouble(10) ** -400]]), marks=needs_wide),
    ],
    ids=str,
)
def test_numbers_that_no_double_equals_are_refused(enter: Callable[[Any], None], rows: Any) -> None:
    with pytest.raises(
        UserError, match=r"row [01] of the sample .*, counted from 0, holds an? (integer|number) that no double"
    ):
        enter(rows)


@needs_wide
@pytest.mark.parametrize("enter", [energy, descent, test_set])
def test_numbers_beyond_the_range_of_doubles_are_refused(enter: Callable[[Any], None]) -> None:
    with pytest.raises(UserError, match="row 1 of the sample .*, counted from 0, holds a number that no double equals"):
        enter(np.array([[1, 2], [3, np.longdouble(10) ** 400]]))


@pytest.mark.parametrize("enter", ENTRIES)
@pytest.mark.parametrize(
    "rows",
    [
        np.array([[BIG, 0], [BIG + 2, -(2**60)]]),
        [[BIG, 0.5], [BIG + 2, 1e30]],
        Frame(a=[BIG, BIG + 2], b=[0.5, 1e30]),
        np.array([[1, 2], [3, 0.1]], dtype=np.longdouble),
        np.array([[1, 2], [3, 0.1]], dtype=np.float32),
    ],
    ids=str,
)
def test_numbers_that_doubles_equal_are_taken(enter: Callable[[Any], None], rows: Any) -> None:
    enter(rows)


def test_the_ranker_takes_what_numpy_can_convert_but_no_rounded_integers() -> None:
    enter = fit
    enter(np.array([[Decimal("0.1"), 1], [2, BIG]], dtype=object))
    with pytest.raises(
        UserError, match="row 1 of the sample X, counted from 0, holds an integer that no double equals"
    ):
        enter(np.array([[Decimal("0.1"), 1], [2, BIG + 1]], dtype=object))


# ---------------------------------------------------------------------------------------------------------------------
# Columns of data frames


AB, BA = Frame(a=[0.0, 1.0], b=[5.0, 7.0]), Frame(b=[5.0, 7.0], a=[0.0, 1.0])
AC = Frame(a=[0.0, 1.0], c=[5.0, 7.0])
REFUSED = r"the samples' data frames have different columns \(a, b; (b, a|a, c)\): pass the same, in the same order"


@pytest.mark.parametrize("other", [BA, AC])
@pytest.mark.parametrize(
    "enter",
    [
        lambda comm, x, z: estimate(comm, x, z, "energy", complete=True),
        lambda comm, x, z: estimate_samples(comm, (x, x, z), "vus", complete=True),
        lambda comm, x, z: learn(comm, x, z, iterations=1, n_workers=1),
        lambda comm, x, z: learn(comm, x, x, x_test=x, z_test=z, iterations=1, n_workers=1),
        lambda comm, x, z: learn_samples(comm, (x, x), tests=(z, z), iterations=1, n_workers=1),
    ],
)
def test_samples_with_other_columns_are_refused(comm: Any, enter: Callable[..., Any], other: Frame) -> None:
    with pytest.raises(UserError, match=REFUSED):
        enter(comm, AB, other)


def test_one_sample_and_its_ranks(comm: Any) -> None:
    """Of one sample every rank has a part."""
    mine = BA if comm.rank == comm.size - 1 else AB
    if comm.size == 1:
        assert estimate(comm, mine, None, "kendall", complete=True).value == 1.0
        return
    with pytest.raises(UserError, match=REFUSED):
        estimate(comm, mine, None, "kendall", complete=True)


def test_the_same_columns_and_single_ones_are_taken(comm: Any) -> None:
    found = [
        estimate(comm, x, z, "energy", complete=True).value
        for x in (AB, np.asarray(AB))
        for z in (Frame(a=[0.5, 2.0], b=[1.0, 3.0]), [[0.5, 1.0], [2.0, 3.0]])
    ]
    assert len(set(found)) == 1
    positives, negatives = Frame(positives=[1.0, 2.0]), Frame(negatives=[0.0, 1.5])
    assert estimate(comm, positives, negatives, complete=True).value == 0.75


def test_the_ranker_pairs_columns_by_name(comm: Any) -> None:
    pytest.importorskip("sklearn")
    from mpi_ustat import PairwiseRanker

    if comm.size > 1:
        with pytest.raises(UserError, match="the ranks' points have different columns"):
            PairwiseRanker(iterations=1).fit(BA if comm.rank else AB, [0, 1], comm)
    ranker = PairwiseRanker(iterations=1).fit(AB, [0, 1], comm)
    assert ranker.decision_function(AB).shape == (2,)
    with pytest.raises(UserError, match="X has the columns b, a: pass those of the fit, in the same order: a, b"):
        ranker.decision_function(BA)
    with pytest.raises(UserError, match="X has the columns b, a"):
        ranker.score(BA, [0, 1])
    # Points without names go by position.
    assert ranker.predict(np.asarray(AB)).tolist() == ranker.predict(AB).tolist()


@pytest.mark.parametrize(
    ("rows", "names"),
    [(AB, ("a", "b")), (np.zeros((2, 2)), None), ([1.0], None), (np.rec.array([(1.0,)], names="columns"), None)],
)
def test_column_names(rows: Any, names: tuple[str, ...] | None) -> None:
    assert column_names(rows) == names
