"""Metrics of boosters on stand-ins for their data sets: scikit-learn's and brute force of what all ranks hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, bounds_of
from standins import Dataset, Matrix

from mpi_ustat import SerialComm, UserError
from mpi_ustat.boosters import auc, metric

pytest.importorskip("sklearn")

from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import roc_auc_score

Array = NDArray[Any]


def own(comm: Any, bounds: list[int], **of_all: Array) -> dict[str, Array]:
    return {name: each[bounds[comm.rank] : bounds[comm.rank + 1]] for name, each in of_all.items()}


def same(comm: Any, value: float) -> float:
    assert len(set(comm.allgather(value))) == 1
    return value


def refusal(comm: Any, of_shard: Any) -> str:
    with pytest.raises(UserError) as caught:
        of_shard()
    (text,) = set(comm.allgather(str(caught.value)))
    return str(text)


def patients() -> tuple[Array, Array, Array]:
    """Real labels, a score with ties, as boosters have them, and weights."""
    table = load_breast_cancer()
    scores = np.round(table.data[:, 0] + 0.02 * table.data[:, 1], 1).astype(np.float32)
    return table.target.astype(np.float32), -scores, (1.0 + table.data[:, 5]).astype(np.float32)


@pytest.mark.parametrize("of", [Matrix, Dataset])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
def test_the_auc_is_that_of_the_gathered_predictions(comm: Any, spread: str, weighted: bool, of: Any) -> None:
    labels, scores, weights = patients()
    order = np.argsort(scores + 3.0 * labels, kind="stable")  # shards that differ
    labels, scores, weights = labels[order], scores[order], weights[order]
    fields = {"label": labels, **({"weight": weights} if weighted else {})}
    bounds = bounds_of(comm, len(labels), spread)
    mine = own(comm, bounds, scores=scores, **fields)
    found = auc(comm)(mine.pop("scores"), of(**mine))

    assert found[0] == "auc_exact"
    assert found[2:] == ((True,) if of is Dataset else ())
    expected = roc_auc_score(labels, scores, sample_weight=weights if weighted else None)
    assert same(comm, found[1]) == pytest.approx(expected, abs=1e-12)
    assert found[1] == auc(SerialComm()).value(scores, of(**fields))
    if weighted:
        unweighted = auc(comm, weights=False).value(own(comm, bounds, s=scores)["s"], of(**mine))
        assert unweighted == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize("of", [Matrix, Dataset])
@pytest.mark.parametrize("weighted", [False, True])
def test_query_groups_are_averaged_over_all_ranks(comm: Any, of: Any, weighted: bool) -> None:
    labels, scores, weights = patients()
    sizes = np.array([40, 1, 90, 150, 3, 120, 65, 100])
    ends = np.cumsum(sizes)
    labels[40:41] = labels[281:284] = 1.0  # groups without a pair
    assert ends[-1] == len(labels)
    cuts = bounds_of(comm, len(sizes), "uneven")  # a rank may have no group
    rows = [0 if cut == 0 else int(ends[cut - 1]) for cut in cuts]
    fields = {"label": labels, **({"weight": weights} if weighted else {})}
    mine = own(comm, rows, scores=scores, **fields) | own(comm, cuts, group=sizes)
    found = auc(comm, groups=True).value(mine.pop("scores"), of(**mine))
    parts = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True) if size > 3]
    of_groups = [roc_auc_score(labels[p], scores[p], sample_weight=weights[p] if weighted else None) for p in parts]
    assert same(comm, found) == pytest.approx(np.mean(of_groups), abs=1e-12)
    of_points = auc(comm, groups=True, group_weight="points", weights=False)
    n_points = [p.stop - p.start for p in parts]
    expected = np.average([roc_auc_score(labels[p], scores[p]) for p in parts], weights=n_points)
    assert of_points.value(own(comm, rows, s=scores)["s"], of(**mine)) == pytest.approx(expected, abs=1e-12)


def test_weights_of_groups_are_those_of_their_rows(comm: Any) -> None:
    labels, scores, _ = patients()
    sizes, weights = np.array([200, 100, 69, 200]), np.array([1.0, 2.0, 0.5, 3.0])
    cuts = bounds_of(comm, len(sizes), "even")
    rows = [int(sizes[:cut].sum()) for cut in cuts]
    mine = own(comm, rows, label=labels, scores=scores) | own(comm, cuts, group=sizes, weight=weights)
    data = Matrix(**mine)
    expected = roc_auc_score(labels, scores, sample_weight=np.repeat(weights, sizes))
    assert auc(comm).value(mine["scores"], data) == pytest.approx(expected, abs=1e-12)
    assert "those of query groups" in refusal(comm, lambda: auc(comm, groups=True).value(mine["scores"], data))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_volume_under_the_surface_of_ordered_classes(comm: Any, weighted: bool) -> None:
    table = load_wine()
    labels, scores = table.target[::-1].astype(np.float64), -np.round(table.data[::-1, 6], 1)
    weights = table.data[::-1, 0] if weighted else np.ones(len(labels))
    mine = own(comm, bounds_of(comm, len(labels)), scores=scores, label=labels, weight=weights)
    name, value = metric(comm, "vus")(mine.pop("scores"), Matrix(**mine))  # type: ignore[misc]
    low, middle, high = (scores[labels == k] for k in range(3))
    a, b, c = (weights[labels == k].astype(np.float32).astype(float) for k in range(3))
    below = ((low[:, None] < middle) * a[:, None]).sum(axis=0)
    above = ((middle[:, None] < high) * c).sum(axis=1)
    assert name == "auc_exact_vus"
    assert same(comm, value) == pytest.approx((b * below * above).sum() / (a.sum() * b.sum() * c.sum()), abs=1e-12)


def concordance(time: Array, event: Array, risk: Array) -> float:
    """Harrell's, from its definition."""
    earlier = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    right = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return float(right[earlier].sum() / earlier.sum())


@pytest.mark.parametrize("bounded", [False, True])
def test_concordance_of_censored_times(comm: Any, bounded: bool) -> None:
    rng = np.random.default_rng(5)
    time, event = rng.integers(1, 30, 90).astype(np.float32), rng.random(90) < 0.6
    risk = rng.integers(0, 9, 90).astype(np.float32)
    upper = np.where(event, time, np.inf)
    fields = (
        {"label_lower_bound": time, "label_upper_bound": upper} if bounded else {"label": np.where(event, time, -time)}
    )
    mine = own(comm, bounds_of(comm, 90, "uneven"), predictions=-risk if bounded else risk, **fields)
    found = metric(comm, "concordance")(mine.pop("predictions"), Matrix(**mine))
    assert found[0] == "auc_exact_concordance"
    assert same(comm, found[1]) == pytest.approx(concordance(time, event, risk), abs=1e-12)


def test_a_horizon_of_the_concordance(comm: Any) -> None:
    time, event, risk = np.array([1.0, 2, 3, 4]), np.array([True] * 4), np.array([9.0, 1, 5, 2])
    mine = own(comm, bounds_of(comm, 4), label=time, risk=risk)
    found = metric(comm, "concordance", kernel_options={"horizon": 2.0}).value(mine["risk"], Matrix(**mine))
    assert found == 1.0 != concordance(time, event, risk)


def columns(**changed: Any) -> dict[str, Any]:
    """Rows of one rank, by default fine."""
    fine = {"scores": np.array([0.5, 0.1, 0.7]), "label": np.array([1.0, 0.0, 1.0]), "weight": np.ones(3)}
    return fine | changed


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one class": (lambda rank: columns(label=np.ones(3)), {}, "the labels of all ranks have 1 value"),
    "three": (lambda rank: columns(label=np.arange(3.0)), {}, "the labels of all ranks have 3 values: the auc is of"),
    "NaN": (lambda rank: columns(scores=np.array([0.1, np.nan, 0.2])), {}, "prediction for row 1 is NaN"),
    "many columns": (lambda rank: columns(scores=np.ones((3, 4))), {}, "metrics take one, a score"),
    "labels": (lambda rank: columns(label=np.ones(2)), {}, "there are 2 labels for 3 rows"),
    "weights": (lambda rank: columns(weight=np.ones(2)), {}, "there are 2 weights for 3 rows"),
    "negative": (lambda rank: columns(weight=-np.ones(3)), {}, "weight"),
    "no groups": (lambda rank: columns(), {"groups": True}, "has no query groups"),
    "interval": (
        lambda rank: columns(label_lower_bound=np.ones(3), label_upper_bound=np.full(3, 2.0)),
        {"kernel": "concordance"},
        "lies in an interval",
    ),
    "no event": (lambda rank: columns(label=-np.ones(3)), {"kernel": "concordance"}, "no pair is comparable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_used_is_refused_on_all_ranks(comm: Any, name: str) -> None:
    rows, options, sentence = REFUSED[name]
    mine = rows(comm.rank)
    found = refusal(comm, lambda: metric(comm, **options)(mine.pop("scores"), Matrix(**mine)))
    assert sentence in found


def test_what_one_rank_can_not_use_is_refused_on_all(comm: Any) -> None:
    last = comm.rank == comm.size - 1
    mine = columns(label=np.ones(2)) if last else columns()
    assert "2 labels for 3 rows" in refusal(comm, lambda: auc(comm).value(mine.pop("scores"), Matrix(**mine)))


def test_weights_on_some_ranks_only_are_refused(comm: Any) -> None:
    mine = columns(weight=np.ones(0)) if comm.rank else columns()
    if comm.size == 1:
        assert auc(comm).value(mine["scores"], Matrix(**mine)) == 1.0
        return
    assert "weights on some ranks only" in refusal(comm, lambda: auc(comm).value(mine["scores"], Matrix(**mine)))


@pytest.mark.parametrize(
    ("options", "sentence"), [({"kernel": "gini"}, "no metric 'gini'"), ({"name": "my-auc"}, "XGBoost's log")]
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        metric(SerialComm(), **options)
