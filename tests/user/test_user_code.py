"""What goes into kernels and objectives and comes out: masks, types, read-only points, symmetry, cancellation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard, shards

from mpi_ustat import SerialComm, UserError, estimate, estimate_samples, learn, learn_samples
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.learning.gradient_share import gradient_share
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.planning.plan import choose

Array = NDArray[Any]

X, Z = np.array([0.5, -2.0, 3.0, 1.5, 0.0, -1.0, 2.5]), np.array([1.0, -0.5, 2.0, 4.0, 0.25])


def refusal(comm: Any, call: Callable[..., Any], *samples: Any, **options: Any) -> str:
    """The sentence with which all ranks refuse, and one alone does."""
    told = []
    for communicator in (comm, SerialComm()):
        with warnings.catch_warnings(), pytest.raises(UserError) as caught:
            warnings.simplefilter("error")
            call(communicator, *shards(communicator, samples), **options)
        told.append(str(caught.value))
    assert comm.allgather(told[0]) == [told[1]] * comm.size
    return told[0]


def with_degrees(function: Callable[..., Any], *degrees: int) -> Callable[..., Any]:
    def kernel(*points: Array) -> Any:
        return function(*points)

    kernel.degrees = degrees  # type: ignore[attr-defined]
    return kernel


# --- masks


def masked(rows: Array, row: int) -> Any:
    mask = np.zeros(rows.shape, dtype=bool)
    mask[row] = True
    return np.ma.array(rows, mask=mask)


ENTRIES: dict[str, Callable[..., Any]] = {
    "estimate": lambda comm, x, z: estimate(comm, x, z, "gini", seed=0),
    "one sample": lambda comm, x, z: estimate(comm, z, None, "variance", n_workers=1, seed=0),
    "estimate_samples": lambda comm, x, z: estimate_samples(comm, (x, z), "auc", complete=True, seed=0),
    "user's": lambda comm, x, z: estimate(comm, x, z, lambda a, b: a - b.T, complete=True, seed=0),
    "learn": lambda comm, x, z: learn(comm, x[:, None], z[:, None], iterations=2, n_workers=1, seed=0),
    "learn_samples": lambda comm, x, z: learn_samples(
        comm, [x[:, None], z[:, None]], iterations=2, n_workers=1, seed=0
    ),
    "test set": lambda comm, x, z: learn(
        comm, X[:3, None], X[:3, None], x_test=x[:, None], z_test=z[:, None], iterations=2, n_workers=1, seed=0
    ),
    "gradient_share": lambda comm, x, z: gradient_share(
        comm, (x[:, None], z[:, None]), LinearRanking(), np.ones(1), n_workers=1, batch_pairs=2, seed=0
    ),
    "plan": lambda comm, x, z: choose(comm, (x, z), EstimateConfig(kernel="gini", n_workers=1, seed=0)),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_masked_points_are_refused_by_their_row(comm: Any, entry: str) -> None:
    told = refusal(comm, ENTRIES[entry], X, masked(Z, 3))
    assert told.startswith("row 3 of the sample ") and "holds a masked value" in told


def test_a_mask_is_seen_in_a_list_of_rows_and_one_that_masks_nothing_does_no_harm() -> None:
    rows = [masked(np.ones(2), 1), np.ones(2)]
    with pytest.raises(UserError, match="row 0 of the sample x, counted from 0, holds a masked value"):
        estimate(SerialComm(), rows, np.ones((2, 2)), "energy", seed=0)  # type: ignore[arg-type]
    plain = estimate(SerialComm(), X, Z, "gini", seed=0).value
    assert estimate(SerialComm(), np.ma.array(X, mask=False), Z, "gini", seed=0).value == plain


# --- bad rows


@pytest.mark.parametrize(
    ("what", "bad"),
    [("NaN", np.nan), ("an infinite value", np.inf), ("an integer that no double equals", 2**53 + 1)],
)
def test_the_first_bad_row_of_all_ranks_is_named(comm: Any, what: str, bad: float) -> None:
    x, z = np.arange(9), np.arange(11)
    if not isinstance(bad, int):
        x, z = x.astype(float), z.astype(float)
    x[5:], z[1:] = bad, bad  # on several ranks, and on a lower one in the other sample
    told = refusal(comm, lambda comm, x, z: estimate(comm, x, z, "gini", seed=0), x, z)
    assert told.startswith(f"row 5 of the sample x, counted from 0, holds {what}")


def test_of_two_kinds_of_bad_rows_the_first_is_named(comm: Any) -> None:
    told = refusal(comm, lambda comm, x, z: estimate(comm, x, z, "gini", seed=0), np.r_[0.0, np.inf, 1.0, np.nan], Z)
    assert told.startswith("row 1 of the sample x, counted from 0, holds an infinite value")


# --- what a kernel returns

RETURNED: dict[str, tuple[Callable[[Array], Any], str]] = {
    "masked": (lambda h: np.ma.masked_equal(h, h.max()), "returned masked values"),
    "complex": (lambda h: h + 0j, "returned complex numbers"),
    "text": (lambda h: h.astype(str), "returned text"),
    "bytes": (lambda h: h.astype("S"), "returned text"),
    "objects": (lambda h: h.astype(object), "returned the type object"),
    "dates": (lambda h: h.astype("M8[s]"), "returned the type datetime64"),
    "nothing": (lambda h: None, "returned the type object"),
    "ragged": (lambda h: [[1.0], [1.0, 2.0]], "returned what is no array"),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_only_real_numbers_are_taken_from_a_kernel(kind: str) -> None:
    spoil, sentence = RETURNED[kind]
    pairs = with_degrees(lambda a, b: spoil(np.abs(a - b.T)), 1, 1)
    aligned = with_degrees(lambda a, b: spoil(np.abs(a - b.T)), 1, 1)
    aligned.pairs = lambda a, b: spoil(a[:, 0])  # type: ignore[attr-defined]
    tuples = with_degrees(lambda a, b, c: spoil(a[:, 0] + b[:, 0] + c[:, 0]), 2, 1)
    for kernel, options in [
        (pairs, {"complete": True}),
        (pairs, {"n_pairs": 3}),
        (aligned, {"n_pairs": 3}),
        (tuples, {"complete": True}),
    ]:
        with warnings.catch_warnings(), pytest.raises(UserError, match=f"^the kernel .*{sentence}"):
            warnings.simplefilter("error")
            estimate(SerialComm(), X, Z, kernel, seed=0, **options)
    with pytest.raises(UserError, match=sentence):
        estimate(SerialComm(), X, None, with_degrees(lambda a, b: spoil(np.abs(a - b.T)), 2), complete=True, seed=0)


class Objective:
    """Sums of x - z, θ times, spoilt by `change` of parameters and points or by what `spoil` makes of the gradient."""

    def __init__(self, change: Callable[..., Any], spoil: Callable[[Array], Any] = np.asarray) -> None:
        self._change, self._spoil = change, spoil

    def n_parameters(self, n_columns: int) -> int:
        return n_columns

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[Any, Any]:
        self._change(parameters, x, z)
        gradient = np.sum(x - z, axis=0)
        return float(gradient @ parameters), self._spoil(gradient)


def fit(objective: Any) -> Callable[..., Any]:
    return lambda comm, x, z: learn(comm, x, z, objective, iterations=2, n_workers=4, init="normal", seed=0)


TWO = np.c_[np.r_[X, X], np.arange(14.0)], np.c_[np.r_[Z, Z], np.arange(10.0)]


@pytest.mark.parametrize("kind", ["masked", "complex", "text", "objects"])
def test_only_real_numbers_are_taken_from_an_objective(comm: Any, kind: str) -> None:
    spoil, sentence = RETURNED[kind]
    told = refusal(comm, fit(Objective(lambda *_: None, lambda h: spoil(h - h.max()))), *TWO)
    assert told.startswith("pairs (the gradient) of the objective Objective ") and sentence in told


# --- what user code gets can't be changed

CHANGES: dict[str, Callable[[Array], Any]] = {
    "in place": lambda a: a.__isub__(1.0),
    "out": lambda a: np.clip(a, -1.0, 1.0, out=a),
    "an entry": lambda a: a.__setitem__(0, 7.0),
    "order": lambda a: a.sort(axis=0),
    "the base": lambda a: a[::2].fill(0.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("argument", [0, -1])
def test_a_kernel_cannot_change_its_points(comm: Any, change: str, argument: int) -> None:
    def changing(*points: Array) -> Any:
        CHANGES[change](points[argument])
        return np.abs(points[0] - points[1].T)

    def sampled(*points: Array) -> Any:
        return np.abs(points[0] - points[1].T)

    sampled.pairs = lambda *points: changing(*points)[:, 0]  # type: ignore[attr-defined]
    given = X.copy(), Z.copy()
    two: list[tuple[Any, dict[str, Any]]] = [
        (changing, {"complete": True}),
        (changing, {"n_pairs": 5}),
        (sampled, {"n_pairs": 5}),
        (with_degrees(changing, 2, 1), {"complete": True}),
    ]
    for kernel, options in two:
        told = refusal(comm, lambda comm, x, z: estimate(comm, x, z, kernel, n_workers=4, seed=0, **options), *given)  # noqa: B023
        assert "changes an array that it was given" in told and "let it work on a copy" in told
    told = refusal(comm, lambda comm, x: estimate(comm, x, None, with_degrees(changing, 2), complete=True), given[0])
    assert "changes an array that it was given" in told
    assert (given[0] == X).all() and (given[1] == Z).all()


@pytest.mark.parametrize("argument", [0, 1, 2])
@pytest.mark.parametrize("method", ["pairs", "gradients", "block", "scores", "scored_loss"])
def test_an_objective_cannot_change_parameters_or_points(comm: Any, method: str, argument: int) -> None:
    class Changing(LinearRanking):
        """What it inherits may overwrite points that are copies; what it does itself may not."""

    def changing(self: Any, *given: Array) -> Any:
        given[min(argument, len(given) - 1)][...] *= 0.5
        return getattr(LinearRanking, method)(self, *given)

    plain = learn(comm, *shards(comm, TWO), Changing(), iterations=2, n_workers=4, seed=0)
    same = learn(comm, *shards(comm, TWO), LinearRanking(), iterations=2, n_workers=4, seed=0)
    assert (plain.parameters == same.parameters).all()

    objective = Objective(lambda *given: given[argument].__imul__(0.5))
    if method != "pairs":
        setattr(Changing, method, changing)
        objective = Changing()
    given = tuple(rows.copy() for rows in TWO)
    batch = None if method == "block" else 5
    told = refusal(
        comm,
        lambda comm, x, z: learn(comm, x, z, objective, iterations=2, n_workers=4, batch_pairs=batch, seed=0),
        *given,
    )
    assert "evaluating the objective" in told and "changes an array that it was given" in told
    assert all((a == b).all() for a, b in zip(given, TWO, strict=True))


# --- symmetry

ASYMMETRIC: dict[str, Callable[..., Any]] = {
    "above": with_degrees(lambda a, b: a > b.T, 2),
    "not a number": with_degrees(lambda a, b: np.where(a > b.T, np.nan, 1.0), 2),
    "(3,), first two": with_degrees(lambda a, b, c: a[:, 0] - b[:, 0], 3),
    "(3,), last": with_degrees(lambda a, b, c: np.abs(a - b)[:, 0] * c[:, 0], 3),
    "(4,), cyclic": with_degrees(lambda a, b, c, d: (a * b - b * c + c * d - d * a)[:, 0], 4),
    "(2, 1)": with_degrees(lambda a, b, c: (a - b)[:, 0] * c[:, 0], 2, 1),
    "(1, 2)": with_degrees(lambda a, b, c: (b - c)[:, 0] * a[:, 0], 1, 2),
}


@pytest.mark.parametrize("name", ASYMMETRIC)
@pytest.mark.parametrize("options", [{"complete": True}, {"n_pairs": 1}, {"n_workers": 1}])
def test_a_kernel_that_is_not_symmetric_is_refused(comm: Any, name: str, options: dict[str, Any]) -> None:
    kernel = ASYMMETRIC[name]
    samples = (X, Z)[: len(kernel.degrees)]  # type: ignore[attr-defined]
    told = refusal(
        comm, lambda comm, *own: estimate_samples(comm, own, kernel, seed=0, **{"n_workers": 1} | options), *samples
    )
    assert "is not symmetric" in told and "average it over the orders" in told


def test_what_a_kernel_gives_for_aligned_pairs_must_be_symmetric_too(comm: Any) -> None:
    kernel = with_degrees(lambda a, b: np.abs(a - b.T), 2)
    kernel.pairs = lambda a, b: (a - b)[:, 0]  # type: ignore[attr-defined]
    told = refusal(comm, lambda comm, x: estimate(comm, x, None, kernel, n_pairs=5, n_workers=1, seed=0), X)
    assert "is not symmetric" in told
    kernel.pairs = lambda a, b: np.abs(a - b)[:, 0]  # type: ignore[attr-defined]
    assert estimate(comm, shard(comm, X), None, kernel, n_pairs=5, n_workers=1, seed=0).value > 0.0


def test_a_kernel_that_is_not_symmetric_is_found_out_by_few_different_points(comm: Any) -> None:
    rare = np.zeros(3000)
    rare[1234] = 1.0
    told = refusal(comm, lambda comm, x: estimate(comm, x, None, ASYMMETRIC["above"], n_pairs=1, seed=0), rare)
    assert "is not symmetric" in told


def test_symmetric_kernels_pass_with_rounding_and_without_a_value_for_a_point_and_itself(comm: Any) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(40, 9)), 3.0 + rng.normal(size=(10, 9))])

    def single(a: Array, b: Array) -> Array:
        a, b = a.astype(np.float32), b.astype(np.float32)
        return np.asarray((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T)

    def inverse(a: Array, b: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.sqrt(((a[:, None] - b) ** 2).sum(axis=2)))

    def spread(a: Array, b: Array, c: Array) -> Array:
        return np.asarray((np.std(np.array([a, b, c]), axis=0)).sum(axis=1) + 1e-12 * a[:, 0])  # nearly

    for kernel in (with_degrees(single, 2), with_degrees(inverse, 2), with_degrees(spread, 3)):
        found = estimate(comm, shard(comm, x), None, kernel, n_workers=1, n_pairs=5, seed=0)
        assert found.value == estimate(SerialComm(), x, None, kernel, n_workers=1, n_pairs=5, seed=0).value


# --- cancellation


def exact(name: str, x: Array, z: Array) -> Fraction:
    """The complete statistic, in rational numbers."""
    x_, z_ = ([Fraction(value) for value in rows.tolist()] for rows in (x, z))
    pairs_of = list(combinations(x_, 2)), list(combinations(z_, 2)), [(a, b) for a in x_ for b in z_]

    def means(h: Callable[[Any, Any], Any]) -> list[Any]:
        return [sum((h(a, b) for a, b in pairs), Fraction(0)) / len(pairs) for pairs in pairs_of]

    if name in ("mmd", "energy"):
        a, c, d = means((lambda s, t: s * t) if name == "mmd" else lambda s, t: abs(s - t))
        return a + c - 2 * d if name == "mmd" else 2 * d - a - c
    h = {"gini": lambda s, t: abs(s - t), "variance": lambda s, t: (s - t) ** 2 / 2, "product": lambda s, t: s * t}
    return means(h[name])[2 if name == "product" else 0]


FAR_AWAY: dict[str, dict[str, Any]] = {
    "mmd": {"kernel": "linear"},
    "energy": {},
    "gini": {},
    "variance": {},
    "product": {},
}


@pytest.mark.parametrize("name", FAR_AWAY)
@pytest.mark.parametrize("offset", [0.0, 1e9, -1e15])
def test_nothing_cancels_far_from_the_origin(comm: Any, name: str, offset: float) -> None:
    x, z = offset + np.array([0.0, 1.0, 5.0, 2.0]), offset + np.array([1.0, 2.0, 9.0])
    one = name in ("gini", "variance")
    samples = (x,) if one else (x, z)
    expected = exact(name, x, z)
    for options in ({"complete": True}, {"n_workers": 1}):
        found = estimate_samples(comm, shards(comm, samples), name, kernel_options=FAR_AWAY[name], seed=0, **options)
        alone = estimate_samples(SerialComm(), samples, name, kernel_options=FAR_AWAY[name], seed=0, **options)
        assert found.value == pytest.approx(float(expected), rel=1e-14)
        assert (found.value, found.stderr) == (alone.value, alone.stderr)


def test_the_linear_mmd_is_right_far_away_in_one_coordinate_and_keeps_its_bits_near_the_origin(comm: Any) -> None:
    linear = {"kernel_options": {"kernel": "linear"}}
    x, z = 1e9 + np.array([0.0, 1.0, 5.0]), 1e9 + np.array([1.0, 2.0])
    assert estimate(comm, *shards(comm, (x, z)), "mmd", complete=True, **linear).value == pytest.approx(
        -7 / 3, rel=1e-15
    )
    rng = np.random.default_rng(1)
    near = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    far = tuple(rows + np.array([0.0, 2.0**40]) for rows in near)
    rounded = tuple(rows - np.array([0.0, 2.0**40]) for rows in far)
    for options in ({"complete": True}, {"n_workers": 3}, {"n_workers": 3, "n_pairs": 20}):
        values = [
            estimate(comm, *shards(comm, samples), "mmd", seed=0, **linear, **options).value
            for samples in (far, rounded)
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
    # As it was before points were moved.
    x, z = near
    within = [(rows.sum(axis=0) @ rows.sum(axis=0) - np.sum(rows**2)) / (len(rows) * (len(rows) - 1)) for rows in near]
    expected = sum(within) - 2 * x.mean(axis=0) @ z.mean(axis=0)
    assert estimate(comm, *shards(comm, (x, z)), "mmd", complete=True, **linear).value == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("scale", [5e-170, 1e-160])
@pytest.mark.parametrize("name", ["mmd", "variance", "fmr", "similarity-histogram"])
def test_points_whose_squares_vanish_are_refused(comm: Any, name: str, scale: float) -> None:
    samples = (scale * X,) if name == "variance" else (scale * X, scale * Z)
    chosen: dict[str, dict[str, Any]] = {
        "mmd": {"kernel": "linear"},
        "fmr": {"metric": "inner", "threshold": 0.0},
        "similarity-histogram": {"metric": "inner", "edges": (-1.0, 0.0, 1.0)},
    }
    options: dict[str, Any] = {"kernel_options": chosen[name]} if name in chosen else {}
    for way in ({"complete": True}, {"n_workers": 1}):
        told = refusal(comm, lambda comm, *own: estimate_samples(comm, own, name, seed=0, **way, **options), *samples)  # noqa: B023
        assert "rescale the points" in told


def test_scales_that_doubles_hold_do_not_matter(comm: Any) -> None:
    whole = estimate(SerialComm(), X, Z, "energy", complete=True).value
    for exponent in (-900, -470, 450, 900):
        scaled = tuple(np.ldexp(rows, exponent) for rows in (X, Z))
        value = estimate(comm, *shards(comm, scaled), "energy", complete=True).value
        assert np.ldexp(value, -exponent) == whole
    told = refusal(comm, lambda comm, x, z: estimate(comm, x, z, "energy", complete=True), 3e307 * X, 3e307 * Z)
    assert "overflows: rescale the points" in told
    told = refusal(comm, lambda comm, x, z: estimate(comm, x, z, "energy", complete=True), 1e-300 * X, 1e-300 * Z)
    assert told.endswith("rescale the points")


def test_an_energy_distance_of_points_in_one_place_is_zero_and_not_less() -> None:
    found = estimate(SerialComm(), np.ones(4), np.ones(3), "energy", complete=True).value
    assert (found, np.signbit(found)) == (0.0, False)


# --- what ends jobs


@pytest.mark.parametrize("complete", [False, True])
def test_a_kernel_cannot_finalise_mpi(comm: Any, complete: bool) -> None:
    """One rank that did would wait for the others, and they for it."""

    def finalising(x: Array, z: Array) -> Any:
        if (x == X[-1]).any():
            MPI.Finalize()
        return x - z.T

    MPI = pytest.importorskip("mpi4py.MPI")
    told = refusal(
        comm, lambda comm, x, z: estimate(comm, x, z, finalising, n_workers=4, seed=0, complete=complete), X, Z
    )
    assert told.startswith("MPI.Finalize is called by code that runs inside the job: ")
    assert not MPI.Is_finalized() and MPI.Finalize.__name__ == "Finalize"
