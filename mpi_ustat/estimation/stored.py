"""An estimate as the content of a result file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.complete.roc import RocCurve
from mpi_ustat.estimation.estimates import ErrorBar, Estimate
from mpi_ustat.inference.hypotheses import WaldTest
from mpi_ustat.inference.intervals import Difference
from mpi_ustat.kernels.registry import find_kernel
from mpi_ustat.mpi.collectives import gather_on_master
from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.results import Dataset, ResultFile

_LEARNT: dict[str, tuple[tuple[str, ...], str]] = {
    "bandwidth": ((), "median of the distances between some points of all samples together"),
    "bandwidth_points": ((), "number of those points"),
    "scales": (("coordinate",), "what each column was divided by"),
}


def learnt_datasets(learnt: Mapping[str, Any]) -> dict[str, Dataset]:
    """Return the datasets of what was taken from the points before anything was evaluated."""
    return {
        f"learnt/{name}": Dataset(np.array(learnt[name]), dims, "", description)
        for name, (dims, description) in _LEARNT.items()
        if name in learnt
    }


def file_of_estimate(
    estimate: Estimate,
    data: Mapping[str, Any],
    paired: Sequence[Difference] = (),
    tests: Sequence[WaldTest | None] = (),
    influence: Sequence[Floats] = (),
    curves: Sequence[RocCurve] = (),
    *,
    words: Callable[[str], str] = str,
) -> ResultFile:
    """Return the estimate as the content of a result file.

    Parameters
    ----------
    estimate : Estimate
    data : mapping
        What is told of the points.
    paired : sequence of Difference
        Between its values.
    tests : sequence of WaldTest or None
        Of its values.
    influence : sequence of ndarray, shape (q, n)
        Of every row of each sample; `influence_of_all`.
    curves : sequence of RocCurve
        Of each column.
    words : callable
        In which flags are told, for who doesn't know Python's names of options.
    """
    kernel = find_kernel(estimate.config.kernel)
    unit = "" if kernel is None else kernel.unit
    several = ("column",) if np.ndim(estimate.value) else ()
    datasets = {
        "estimate": Dataset(np.array(estimate.value), several, unit, "the estimate"),
        "n": Dataset(np.array(estimate.n), (), "", "size of the first sample"),
        "sizes": Dataset(np.array(estimate.sizes), ("sample",), "", "sizes of the samples"),
        **_error_datasets("", estimate.error, unit, several),
        **_to_complete_dataset(estimate, unit, several),
        **_datasets_of_tests(tests, several),
    }
    if estimate.n_evaluations:
        n_pairs = _number(estimate.n_evaluations)
        datasets["n_pairs"] = Dataset(n_pairs, (), "", "pairs evaluated, over all workers and rounds")
    if estimate.m is not None:
        datasets["m"] = Dataset(np.array(estimate.m), (), "", "size of the second sample")
    if estimate.complete_value is not None:
        value, moved = np.array(estimate.complete_value), np.array(estimate.complete_bytes_moved)
        datasets["complete_value"] = Dataset(value, several, unit, "the statistic over all pairs")
        datasets["complete_bytes_moved"] = Dataset(moved, (), "bytes", "bytes that went between ranks for it")
        if not estimate.config.complete:
            datasets |= _error_datasets("complete_", estimate.complete_error, unit, several)
    for each in estimate.bias:
        difference, what = np.array([each.difference, _or_nan(each.stderr)]), ("difference and standard error",)
        description = "the shards' averages as they lie, minus the complete value"
        datasets[f"bias/{each.aggregate}"] = Dataset(difference, what, unit, description)
    analysed, scales = _analysis_datasets(estimate, influence, several)
    datasets |= analysed
    if several:
        scales["column"] = np.arange(len(estimate.values))
    if not estimate.config.complete:
        scales |= {"round": np.arange(len(estimate.per_round))}
        scales |= {"worker": np.arange(estimate.config.n_workers)} if estimate.config.per_worker else {}
        for name, values, value_unit, description in (
            ("per_round/value", estimate.per_round, unit, "estimate of each round"),
            ("per_round/n_pairs", estimate.evaluations_per_round, "", "pairs evaluated in each round"),
            ("per_round/rows_moved", estimate.rows_moved, "rows", "rows that changed worker"),
            ("per_round/bytes_moved", estimate.bytes_moved, "bytes", "bytes that went between ranks"),
            ("per_worker/value", estimate.per_worker, unit, "local average of each worker; NaN where it had no pair"),
            ("per_worker/n_pairs", estimate.evaluations, "", "pairs behind each local average"),
        ):
            if name.startswith("per_worker") and not estimate.config.per_worker:
                continue
            dims: tuple[str, ...] = ("round", "worker") if name.startswith("per_worker") else ("round",)
            dims += several if name.endswith("value") else ()
            datasets[name] = Dataset(values, dims, value_unit, description)
    datasets |= learnt_datasets(estimate.learnt) | roc_datasets(curves)
    for phase, seconds in estimate.seconds.items():
        datasets[f"seconds/{phase}"] = Dataset(np.array(seconds), (), "s", "of the slowest rank")
    config = estimate.config.to_json() | {"data": dict(data), "columns": list(estimate.columns)}
    if estimate.error is not None or estimate.flags:
        config["flags"] = list(map(words, estimate.flags))
    if paired:
        config["differences"] = [plain_difference(each) for each in paired]
        config["omnibus"] = plain_omnibus(estimate)
    if estimate.expectation_factor != 1.0:
        config["expectation_factor"] = estimate.expectation_factor
    return ResultFile("estimate", config, {}, datasets, scales)


def _error_datasets(prefix: str, error: ErrorBar | None, unit: str, several: tuple[str, ...]) -> dict[str, Dataset]:
    if error is None:
        return {}
    stderr = np.array([_or_nan(each) for each in error.stderr])
    ends = np.array([[_or_nan(each.lower), _or_nan(each.upper)] for each in error.intervals])
    how = f"against the population, estimated from {error.method}; NaN where it is not known"
    kind = f"confidence interval ({error.intervals[0].method})"
    if not several:
        stderr, ends = stderr[0], ends[0]
    found = {
        f"{prefix}stderr": Dataset(stderr, several, unit, f"standard error, {how}"),
        f"{prefix}interval": Dataset(ends, (*several, "lower and upper"), unit, kind),
    }
    for name, values, dims, description in (
        (
            "covariance",
            error.covariance if several else None,
            ("column", "other column"),
            "estimated covariance of the estimates",
        ),
        ("components", error.components, ("component", "part", "other part"), "estimated Hoeffding components"),
    ):
        if values is not None:
            found[f"{prefix}{name}"] = Dataset(values, dims, "", description)
    return found


def _to_complete_dataset(estimate: Estimate, unit: str, several: tuple[str, ...]) -> dict[str, Dataset]:
    if estimate.error is None:
        return {}
    found = np.array([_or_nan(each) for each in estimate.error.stderr_to_complete])
    what = "standard error against U_n, the statistic of all pairs of these points; NaN where it is not known"
    return {"stderr_to_complete": Dataset(found if several else found[0], several, unit, what)}


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _number(integer: int) -> NDArray[Any]:
    """Return an integer as HDF5 can hold it: numbers of pairs may pass 2⁶³, and are then rounded to a double."""
    return np.array(integer if integer < 2**63 else float(integer))


def plain_difference(each: Difference) -> dict[str, Any]:
    """Return a difference as JSON can hold it."""
    test = None if each.test is None else vars(each.test)
    return vars(each) | {"interval": vars(each.interval), "flags": list(each.flags), "test": test}


def plain_omnibus(estimate: Estimate) -> dict[str, Any] | None:
    """Return the test that all statistics are equal as JSON can hold it; None where there is none."""
    found = estimate.omnibus()
    return None if found is None else vars(found)


def _datasets_of_tests(tests: Sequence[WaldTest | None], several: tuple[str, ...]) -> dict[str, Dataset]:
    """Return the datasets of the tests of an estimate's values; none where nothing is tested."""
    known = [test for test in tests if test is not None]
    if not known:
        return {}
    what = f"of the test that the population's value is {known[0].null:g}"
    null = Dataset(np.array(known[0].null), (), "", "value of the population that is tested")
    found = {"test/null": null}
    for name, description in (("z", f"statistic {what}"), ("p", f"two-sided p-value {what}; 0 below the least double")):
        values = np.array([np.nan if test is None else getattr(test, name) for test in tests])
        found[f"test/{name}"] = Dataset(values if several else values[0], several, "1", description)
    return found


def _analysis_datasets(
    estimate: Estimate, influence: Sequence[Floats], several: tuple[str, ...]
) -> tuple[dict[str, Dataset], dict[str, Any]]:
    """Return the datasets of groups, clusters and influence, and the scales of their dimensions."""
    analysis = estimate.analysis
    if analysis is None:
        return {}, {}
    datasets = {"total_weight": Dataset(np.array(analysis.total_weight), (), "", "weight of the pairs that count")}
    scales: dict[str, Any] = {}
    if analysis.clusters is not None:
        n, of_samples = analysis.clusters.n_clusters, np.array(analysis.clusters.with_points_of)
        datasets["clusters/n"] = Dataset(np.array(n), (), "", "clusters that have any point")
        datasets["clusters/n_with_points_of"] = Dataset(of_samples, ("sample",), "", "clusters with points of a sample")
    if analysis.groups is not None and analysis.groups.table is not None:
        table = analysis.groups.table
        numbers = table.names.dtype.kind == "f"
        scales["group"] = table.names if numbers else np.array(list(map(str, table.names)))
        values = table.values if several else table.values[:, 0]
        datasets |= {
            "groups/value": Dataset(values, ("group", *several), "", "the statistic; NaN of groups without a pair"),
            "groups/points": Dataset(table.points, ("group", "sample"), "", "weight of the points of each sample"),
            "groups/pairs": Dataset(table.pairs, ("group",), "", "weight of the pairs"),
        }
    names = ("x", "z") if len(influence) <= 2 else tuple(f"sample {k}" for k in range(len(influence)))
    for name, psi in zip(names, influence, strict=False):
        values, dims = (psi.T, (f"row of {name}", *several)) if several else (psi[0], (f"row of {name}",))
        datasets[f"influence/{name}"] = Dataset(values, dims, "", f"influence of each row of {name} on the estimate")
    return datasets, scales


def roc_datasets(curves: Sequence[RocCurve]) -> dict[str, Dataset]:
    """Return the datasets of the ROC curves of an estimate's columns."""
    told = {
        "threshold": ("", "descending, from above all scores"),
        "fpr": ("1", "share of negatives with a score of at least the threshold"),
        "tpr": ("1", "share of positives with a score of at least the threshold"),
        "false_positives": ("", "these negatives"),
        "true_positives": ("", "these positives"),
        "lower": ("1", "lower end of a simultaneous band of the population's curve, at fpr"),
        "upper": ("1", "its upper end"),
    }
    return {
        f"roc/{j}/{name}": Dataset(getattr(curve, name), (f"threshold of {j}",), unit, description)
        for j, curve in enumerate(curves)
        for name, (unit, description) in told.items()
    }


def influence_of_all(comm: Any, estimate: Estimate) -> list[Floats]:
    """Return the influence of every row of each sample, (q, n), on rank 0; empty where there is none.  Collective."""
    if estimate.analysis is None:
        return []
    return [np.array([gather_on_master(comm, each) for each in psi]) for psi in estimate.analysis.influence]


def plain_groups(estimate: Estimate) -> dict[str, Any]:
    """Return each group's value and weight of pairs as JSON can hold them; nothing of an estimate without groups."""
    groups = None if estimate.analysis is None else estimate.analysis.groups
    if groups is None or groups.table is None:
        return {}
    values = groups.table.values if np.ndim(estimate.value) else groups.table.values[:, 0]
    known = values.astype(object)
    known[np.isnan(values)] = None
    columns = {"group": groups.table.names, "value": known, "pairs": groups.table.pairs}
    return {"groups": {name: each.tolist() for name, each in columns.items()}}
