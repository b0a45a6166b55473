"""What `mpi-ustat info` says of an estimate's intervals, tests, differences, points and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mpi_ustat.inference.hypotheses import p_text
from mpi_ustat.storage.ranked_groups import RankedGroups, ranked_groups
from mpi_ustat.storage.results import ResultFile
from mpi_ustat.testing.result import rests_text
from mpi_ustat.wording import count_of

Row = tuple[str, ...]

SHOWN_APART = ("differences", "omnibus")
"""Options of the file that are results, and are told as such."""

_NAMED = 5


def inference_sections(result: ResultFile) -> Iterator[tuple[str, list[Row]]]:
    """Yield titles and rows of columns; sections that the file has nothing for have no rows."""
    level = f"{100 * result.config.get('confidence', 0.95):g} % interval"
    yield f"{level} and test" if "interval" in result.datasets else "test", list(_tests(result))
    whom = "all" if "test/pairs/p" in result.datasets else "both"
    yield f"test that {whom} samples are of one law", list(_of_one_law(result))
    yield "tests of every two samples", list(_of_every_two(result))
    yield "differences", list(_differences(result))
    yield "points", list(_points(result))
    columns = result.config.get("columns") or []
    for j, groups in enumerate(ranked_groups(result)):
        by = f", by {columns[j]}" if len(columns) > 1 else ""
        missing = f"; {groups.n_undefined} more without a pair, left out" if groups.n_undefined else ""
        yield f"groups{by}: {len(groups.values)}{missing}", list(_groups(groups))


def _tests(result: ResultFile) -> Iterator[Row]:
    if "test/z" not in result.datasets:
        return
    null = f"that it is {float(result.datasets['test/null'].values):g}: " if "test/null" in result.datasets else ""
    z, p = (np.atleast_1d(result.datasets[f"test/{name}"].values) for name in ("z", "p"))
    names = result.config.get("columns") or [str(j) for j in range(len(z))]
    ends = [""] * len(z)
    if "interval" in result.datasets:
        bounds = result.datasets["interval"].values.reshape(len(z), 2)
        ends = ["none" if np.isnan(each).any() else f"[{each[0]:.6g}, {each[1]:.6g}]" for each in bounds]
    for j in range(len(z)):
        told = "no test" if np.isnan(z[j]) else f"{null}{_tested(z[j], p[j])}"
        yield str(names[j]) if len(z) > 1 else "estimate", ends[j], told


def _of_one_law(result: ResultFile) -> Iterator[Row]:
    if result.kind != "test":
        return
    found = {name.removeprefix("test/"): each.values for name, each in result.datasets.items()}
    joint = " and " if len(found["n_blocks"]) == 2 else ", "
    of_each = joint.join(map(str, found["n_blocks"].tolist()))
    which = "all" if result.config.get("exact") else "random"
    yield "p", f"{float(found['p']):.6g}"
    if result.config.get("n_rounds"):
        pairs = count_of(int(found["n_pairs"]), "pair of points", "pairs of points")
        pairs += f", of those of {result.config['n_workers']} workers that met"
        yield "rounds", f"{result.config['n_rounds']}: {pairs}"
    yield "permutations", f"{which} {int(found['n_permutations'])}"
    size = count_of(int(found["block_size"]), "point")
    yield "blocks", f"{of_each}, of {size}{rests_text(found['rests'].tolist())}"
    for level, value in zip(result.scales["level"].tolist(), found["quantile"].tolist(), strict=True):
        yield f"{100 * level:g} % of relabelled values", f"at most {value:.6g}"
    if "several/estimate" in found:
        (option,) = result.datasets["test/several/estimate"].dims
        every = zip(
            result.scales[option].tolist(), found["several/estimate"], found["several/studentised"], strict=True
        )
        for k, (used, value, own) in enumerate(every):
            mark = ", the largest" * (k == int(found["several/largest"]))
            yield f"{option} {used:.6g}", f"{value:.6g}, studentised {own:.6g}{mark}"


def _of_every_two(result: ResultFile) -> Iterator[Row]:
    if "test/pairs/p" not in result.datasets:
        return
    found = {name: each.values.tolist() for name, each in result.datasets.items()}
    names = result.config["data"].get("classes") or [str(k) for k in range(len(found["test/n_blocks"]))]
    columns = (found[f"test/pairs/{name}"] for name in ("first", "second", "value", "p", "p_holm"))
    for first, second, value, p, p_holm in zip(*columns, strict=True):
        yield f"{names[first]} and {names[second]}", f"{value:.6g}", _p(p), f"with Holm's correction {_p(p_holm)}"


def _tested(z: float, p: float) -> str:
    return f"z = {z:.4g}, {_p(p)}"


def _p(p: float) -> str:
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _differences(result: ResultFile) -> Iterator[Row]:
    columns = result.config.get("columns") or []
    for each in result.config.get("differences") or ():
        within, test = each["interval"], each.get("test")
        stderr = "" if each["stderr"] is None else f" ± {each['stderr']:.3g}"
        ends = "" if within["lower"] is None else f"[{within['lower']:.6g}, {within['upper']:.6g}]"
        side = f"at most {test['null']:g}" if test and test["one_sided"] else "0"
        told = f"that it is {side}: {_tested(test['z'], test['p'])}" if test else ""
        yield f"{columns[each['first']]} - {columns[each['second']]}", f"{each['value']!r}{stderr}", ends, told
    found: Mapping[str, Any] | None = result.config.get("omnibus")
    if found and np.size(result.datasets["estimate"].values) > 2:
        degrees = count_of(found["rank"], "degree")
        yield "all equal", f"chi-squared = {found['statistic']:.4g} ({degrees})", "", _p(found["p"])


def _points(result: ResultFile) -> Iterator[Row]:
    found = result.datasets
    if "total_weight" in found:
        yield "weight of all pairs", f"{float(found['total_weight'].values):.10g}"
    if "clusters/n" in found:
        of_samples = ", ".join(str(each) for each in found["clusters/n_with_points_of"].values.tolist())
        yield "clusters", f"{int(found['clusters/n'].values)} (with points of each sample: {of_samples})"
    influence = [name for name in found if name.startswith("influence/")]
    if influence:
        rows = ", ".join(f"{len(found[name].values)} of {name.removeprefix('influence/')}" for name in influence)
        yield "influence", f"of every row: {rows}"


def _groups(groups: RankedGroups) -> Iterator[Row]:
    n = len(groups.values)
    several = {"lowest": groups.lowest(_NAMED), "highest": groups.highest(_NAMED)}
    if n <= 2 * _NAMED:
        several = {"lowest first": groups.lowest(n)}
    for what, places in several.items():
        for row, place in enumerate(places):
            points, pairs = (f"{float(each[place]):.10g}" for each in (groups.points, groups.pairs))
            told = f"{groups.values[place]:.6g}", f"{count_of(points, 'point')}, {count_of(pairs, 'pair')}"
            yield ("" if row else what), groups.name(place), *told
