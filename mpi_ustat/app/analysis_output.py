"""Tests, groups, influence and what was learnt of the points, as a command shows and stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.printed import Rows, p_equals
from mpi_ustat.inference.hypotheses import WaldTest
from mpi_ustat.mpi.collectives import gather_on_master
from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.results import Dataset

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


def plain_test(test: WaldTest | None) -> dict[str, Any] | None:
    """Return a test as JSON can hold it."""
    return None if test is None else vars(test)


def omnibus_row(estimate: Estimate) -> Rows:
    """Return the row of the test that all statistics are equal; none of fewer than three, or where there is no test."""
    found = estimate.omnibus() if len(estimate.columns) > 2 else None
    if found is None:
        return []
    return [("all equal", f"chi-squared = {found.statistic:.4g} ({found.rank} degrees), p {p_equals(found.p)}")]


def datasets_of_tests(tests: Sequence[WaldTest | None], several: tuple[str, ...]) -> dict[str, Dataset]:
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


def analysis_datasets(
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
