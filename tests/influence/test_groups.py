"""The statistic of each group, sums by key, and what keys are called."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sharding import SPREADS, shard

from mpi_ustat import SerialComm, estimate
from mpi_ustat.errors import UserError
from mpi_ustat.influence.analysis import keys_of
from mpi_ustat.influence.auc import auc
from mpi_ustat.influence.groups import GroupMean, Groups, groups, mean
from mpi_ustat.influence.keyed import strata_together, sums_by_key
from mpi_ustat.influence.keys import Keys, shared, texts_on_master
from mpi_ustat.influence.points import Sample


@pytest.mark.parametrize("spread", SPREADS)
def test_sums_by_key_are_exact_and_each_key_is_on_one_rank(comm: Any, spread: str) -> None:
    rng = np.random.default_rng(0)
    keys, values = rng.integers(-5, 40, 300), rng.normal(size=(2, 300)) * 10.0 ** rng.integers(-9, 9, 300)
    own_keys, sums = sums_by_key(comm, shard(comm, keys, spread), shard(comm, values.T, spread).T)
    assert (np.diff(own_keys) > 0).all()
    everyone = comm.allgather((own_keys, sums))
    found = {key: of_key for k, s in everyone for key, of_key in zip(k.tolist(), s.T, strict=True)}
    assert sorted(found) == np.unique(keys).tolist() and sum(len(k) for k, _ in everyone) == len(found)
    for key, of_key in found.items():
        for row, got in zip(values, of_key, strict=True):
            want = sum(map(Fraction, row[keys == key].tolist()), Fraction())
            assert abs(Fraction(float(got)) - want) <= abs(want) / 2**51
    (alone_keys, alone) = sums_by_key(SerialComm(), keys, values)
    for key, of_key in zip(alone_keys.tolist(), alone.T, strict=True):
        assert found[key].tobytes() == of_key.tobytes()


def test_names_of_rows_stay_with_them_while_they_are_read(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("one rank has nobody to tell")
    from mpi4py import MPI

    told: list[int] = []

    class Heard(MPI.Intracomm):
        def allgather(self, sendobj: Any) -> list[Any]:
            told.append(len(MPI.pickle.dumps(sendobj)))
            return super().allgather(sendobj)

    rows = np.zeros(5000)
    keys = keys_of(Heard(comm), [rows, rows], [np.arange(5000), np.arange(5000) + 3], "clusters", ["x", "z"])
    assert len(keys.codes) == 10_000 and max(told) < 100


@pytest.mark.parametrize("n_groups", [4000, 1])
def test_strata_come_together_on_equally_loaded_ranks_and_stay_where_they_cannot(comm: Any, n_groups: int) -> None:
    rng = np.random.default_rng(4)
    names, rows, weights = rng.permutation(40_000) % n_groups, rng.normal(size=40_000), rng.exponential(size=40_000)
    codes = Keys.of(names, "groups").codes
    halves = [slice(0, 15_000), slice(15_000, None)]
    samples = [
        Sample(*(shard(comm, each[half], "uneven", k) for each in (rows, weights, codes)))
        for k, half in enumerate(halves)
    ]
    found, sent = strata_together(comm, samples)
    everyone = comm.allgather([(each.strata, each.rows, each.weights) for each in found])
    if comm.size > 1 and n_groups == 1:
        assert [*map(id, found)] == [*map(id, samples)] and not sent
        return
    if comm.size > 1:
        sizes = [sum(len(strata) for strata, *_ in own) for own in everyone]
        assert max(sizes) < 1.1 * min(sizes) and all(each.together for each in found)
        owners = [set(np.concatenate([strata for strata, *_ in own]).tolist()) for own in everyone]
        assert sum(map(len, owners)) == len(set().union(*owners)) == n_groups
    for k, half in enumerate(halves):
        moved = np.array([np.concatenate([own[k][at] for own in everyone]) for at in range(3)])
        meant = np.array([codes[half], rows[half], weights[half]])
        assert_array_equal(moved[:, np.argsort(moved[1])], meant[:, np.argsort(rows[half])])


def of_auc(comm: Any, samples: list[Sample]) -> tuple[Groups, Any]:
    sums, _ = auc(comm, samples)
    found = groups(comm, samples, sums, 2)
    parts = comm.allgather((found.codes, found.parts[0], found.points, found.pairs))
    order = np.argsort(np.concatenate([each[0] for each in parts]))
    whole = [np.concatenate([each[k] for each in parts], axis=-1)[..., order] for k in range(4)]
    return found, whole


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
def test_groups_are_what_each_gives_alone(comm: Any, spread: str, weighted: bool) -> None:
    rng = np.random.default_rng(3)
    rows, of_group = (
        [rng.integers(0, 9, size) * 1.0 for size in (130, 170)],
        [rng.integers(0, 40, s) for s in (130, 170)],
    )
    weights = [rng.exponential(size=len(each)) if weighted else np.ones(len(each)) for each in rows]
    own = [
        Sample(
            *(
                shard(comm, each, spread, k)
                for each in (rows[k], weights[k] if weighted else np.ones(len(rows[k])), of_group[k])
            )
        )
        for k in (0, 1)
    ]
    if not weighted:
        own = [Sample(each.rows, None, each.strata) for each in own]
    found, (codes, values, points, pairs) = of_auc(comm, own)
    assert_array_equal(codes, np.unique(np.concatenate(of_group)))
    for g, value, of_points, weight in zip(codes.tolist(), values, points.T, pairs, strict=True):
        (x, wx), (z, wz) = ((r[c == g], w[c == g]) for r, w, c in zip(rows, weights, of_group, strict=True))
        assert_allclose(of_points, [wx.sum(), wz.sum()], rtol=1e-14)
        assert_allclose(weight, wx.sum() * wz.sum(), rtol=1e-14)
        if len(x) and len(z):
            wins = (z < x[:, None]) + 0.5 * (z == x[:, None])
            assert_allclose(value, wx @ wins @ wz / (wx.sum() * wz.sum()), rtol=1e-13)
            if not weighted:
                assert_allclose(
                    value, estimate(SerialComm(), x, z, "auc", complete=True, stderr=False).value, rtol=1e-15
                )
        else:
            assert np.isnan(value)
    there = pairs > 0
    for by, a in {
        "one": np.ones(len(codes)),
        "points": points.sum(axis=0),
        "positives": points[0],
        "pairs": pairs,
    }.items():
        got: GroupMean = mean(comm, found, found.parts, by)  # type: ignore[arg-type]
        a, v = a[there], values[there]
        theta, n = (a * v).sum() / a.sum(), len(a)
        assert (got.n_groups, got.n_undefined) == (n, len(codes) - n)
        assert_allclose(got.value, theta, rtol=1e-13)
        assert_allclose(got.covariance, n / (n - 1) * ((a * (v - theta)) ** 2).sum() / a.sum() ** 2, rtol=1e-12)
        alone = mean(SerialComm(), *_alone(rows, weights if weighted else None, of_group), by)  # type: ignore[arg-type]
        assert alone.value.tobytes() == got.value.tobytes()
        assert alone.covariance.tobytes() == got.covariance.tobytes()


def _alone(rows: Any, weights: Any, of_group: Any) -> tuple[Groups, Any]:
    samples = [Sample(rows[k], None if weights is None else weights[k], of_group[k]) for k in (0, 1)]
    found, _ = of_auc(SerialComm(), samples)
    return found, found.parts


def test_one_group_over_all_ranks_and_many_of_few_rows(comm: Any) -> None:
    rng = np.random.default_rng(5)
    sizes = (400, 300)
    rows = [rng.normal(size=size) for size in sizes]
    of_group = [np.where(np.arange(size) < size - 60, 7, np.arange(size)) for size in sizes]
    samples = [Sample(shard(comm, rows[k]), None, shard(comm, of_group[k])) for k in (0, 1)]
    _, (codes, values, _, _) = of_auc(comm, samples)
    x, z = (each[c == 7] for each, c in zip(rows, of_group, strict=True))
    assert values[codes == 7] == estimate(SerialComm(), x, z, "auc", complete=True).value


def test_no_group_has_a_pair(comm: Any) -> None:
    samples = [Sample(np.arange(3.0), None, np.array([1, 2, 3])), Sample(np.arange(2.0), None, np.array([4, 5]))]
    own = [Sample(*(None if a is None else shard(comm, a) for a in (s.rows, s.weights, s.strata))) for s in samples]  # type: ignore[arg-type]
    sums, _ = auc(comm, own)
    found = groups(comm, own, sums, 2)
    with pytest.raises(UserError, match="none of the 5 groups has a pair"):
        mean(comm, found, found.parts, "one")


# --- keys


def test_numbers_and_text_are_keys() -> None:
    numbers = Keys.of(np.array([1.5, -0.0, 0.0, 1.5]), "clusters")
    assert numbers.codes[1] == numbers.codes[2] and numbers.codes[0] == numbers.codes[3]
    assert_array_equal(numbers.codes.view(np.float64), [1.5, 0.0, 0.0, 1.5])
    assert_array_equal(Keys.of(np.array([3, 4]), "clusters").codes, Keys.of(np.array([3.0, 4.0]), "clusters").codes)
    text = Keys.of(np.array(["b", "a", "b"]), "clusters")
    assert text.codes[0] == text.codes[2] != text.codes[1]
    assert_array_equal(text.codes, Keys.of(np.array(["b", "a", "b"], dtype=object), "clusters").codes)
    assert text.texts is not None and [text.texts[code] for code in text.codes.tolist()] == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (np.array([1.0, np.nan]), "empty cells"),
        (np.array(["a", ""]), "empty cells"),
        (np.array([2**60 + 1]), "above 2\\^53"),
        (np.array([1j]), "numbers or text"),
    ],
)
def test_keys_that_are_refused(comm: Any, names: Any, said: str) -> None:
    with pytest.raises(UserError, match=f"clusters .*{said}"):
        shared(comm, names if comm.rank == comm.size - 1 else names[:0], "clusters")


def test_text_on_one_rank_and_numbers_on_another(comm: Any) -> None:
    names = np.array(["a"]) if comm.rank == 0 else np.array([1.0])
    if comm.size == 1:
        assert shared(comm, names, "strata").texts
    else:
        with pytest.raises(UserError, match="text"):
            shared(comm, names, "strata")


def test_texts_of_all_ranks_are_known_to_the_first(comm: Any) -> None:
    keys = shared(comm, shard(comm, np.array(["b", "a", "c", "b"])), "groups")
    codes = np.concatenate(comm.allgather(keys.codes)).tolist()
    texts = texts_on_master(comm, keys)
    if comm.rank == 0:
        assert [texts[code] for code in codes] == ["b", "a", "c", "b"]
    assert codes == Keys.of(np.array(["b", "a", "c", "b"]), "groups").codes.tolist()


def test_two_texts_of_one_digest_are_told(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hashlib.blake2b", lambda text, digest_size: SimpleNamespace(digest=lambda: b"12345678"))
    with pytest.raises(UserError, match="have one digest"):
        shared(comm, np.array(["a", "b"])[[comm.rank % 2, 1]], "groups")
