"""The short table that says what an estimate is: what `print` and the command line show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.inference.hypotheses import WaldTest, p_text
from mpi_ustat.kernels.registry import options_of
from mpi_ustat.wording import count_of

if TYPE_CHECKING:
    from mpi_ustat.estimation.estimates import ErrorBar, Estimate
    from mpi_ustat.inference.intervals import Interval

Rows = list[tuple[str, str]]

_LISTED_SCALES = 8

INFLUENCE = "influence"
"""The route of statistics of points that more is said about than where they are."""


def as_text(rows: Rows) -> str:
    """Return a table's rows as lines."""
    return "\n".join(f"{name:<18}{text}" for name, text in rows)


def seconds_row(seconds: dict[str, float]) -> tuple[str, str]:
    """Return the row of what the phases took."""
    return "seconds", ", ".join(f"{phase} {each:.3f}" for phase, each in seconds.items())


def sizes_text(sizes: Sequence[int], classes: Sequence[str] = ()) -> str:
    """Return the sizes of samples with their names, and what each is, where that is known."""
    names = ("n", "m") if len(sizes) <= 2 else tuple(f"n{k + 1}" for k in range(len(sizes)))
    of_class = [f" {each}" if each else "" for each in classes or [""] * len(sizes)]
    return ", ".join(f"{name} = {size}{of}" for name, size, of in zip(names, sizes, of_class, strict=False))


def estimate_rows(estimate: Estimate, classes: Sequence[str] = (), null: float | None = None) -> Rows:
    """Return the rows of an estimate's table.

    `classes` are names of the samples, where they have any; `null` is tested, by default the kernel's.
    """
    config, unit = estimate.config, estimate.unit
    kernel = f"{config.kernel}, ties {config.ties}" if "ties" in options_of(config.kernel) else config.kernel
    kernel += "".join(f", {name} {value}" for name, value in config.kernel_options.items())
    rows = [
        *_values("estimate", estimate.value, estimate.error, estimate.columns),
        ("kernel", kernel),
        ("points", sizes_text(estimate.sizes, classes)),
    ]
    if estimate.error is not None:
        level = f"{100 * config.confidence:g} %"
        within = estimate.error.intervals[0]
        how = within.note if within.method == "exact" else f"{within.method}, from {estimate.error.method}"
        told = "none" if within.method == "none" else f"{level}, {how}; for the population's value"
        rows.insert(-2, ("interval", told))
        rows.insert(-2, ("to U_n", _to_complete(estimate, estimate.error)))
    rows[-2:-2] = [("beware", flag) for flag in estimate.flags]
    rows[-1:-1] = learnt_rows(estimate.learnt)
    if config.complete:
        all_tuples = f"all {estimate.n_evaluations} (the complete statistic), by the route {estimate.route}"
        rows += [
            *([(f"{unit}s", all_tuples)] if estimate.route != INFLUENCE else _analysis(estimate)),
            ("moved", moved_text(estimate.complete_bytes_moved, estimate.n_ranks)),
        ]
    else:
        kind = "different" if config.distinct else "sampled"
        sampled = (
            f"all local {unit}s" if config.n_pairs is None else f"{count_of(config.n_pairs, f'{kind} {unit}')} a worker"
        )
        of_what = "mean of local values" if config.aggregate == "mean" else f"pooled over local {unit}s"
        became = "counted as 0" if config.empty == "zero" and config.aggregate == "mean" else "left out"
        empty = [(f"without a {unit}", f"{count_of(estimate.empty_workers, 'local value')}, {became}")] * bool(
            estimate.empty_workers
        )
        rows += [
            (
                "scheme",
                f"{config.scheme}, {count_of(config.n_rounds, 'round')} of {count_of(config.n_workers, 'worker')}",
            ),
            ("aggregate", of_what),
            (f"{unit}s", f"{estimate.n_evaluations} ({sampled})"),
            *empty,
            (
                "moved",
                f"{count_of(estimate.rows_moved.sum(), 'row')} between workers, "
                + moved_text(estimate.bytes_moved.sum(), estimate.n_ranks),
            ),
            ("seed", str(config.seed)),
        ]
    if estimate.complete_value is not None and not config.complete:
        rows += _values("complete value", estimate.complete_value, estimate.complete_error, estimate.columns)
        rows += _from_complete(estimate)
    for each in estimate.bias:
        chance = "no standard error" if each.z is None else f"{each.z:.1f} times the {each.stderr:.3g} of chance"
        rows.append((f"bias, {each.aggregate}", f"{each.difference!r} ({chance})"))
    return rows + rows_of_tests(estimate, estimate.tests(null))


def moved_text(n_bytes: int, n_ranks: int) -> str:
    """Return how much was sent between how many ranks."""
    return f"{count_of(n_bytes, 'byte')} between {count_of(n_ranks, 'rank')}"


def learnt_rows(learnt: Mapping[str, Any]) -> Rows:
    """Return the rows of what was taken from the points before anything was evaluated."""
    rows = []
    if "bandwidth" in learnt:
        of_what = f"the median of the distances between {learnt['bandwidth_points']} points of all samples together"
        rows.append(("bandwidth", f"{learnt['bandwidth']!r}, {of_what}"))
    if "scales" in learnt:
        scales = learnt["scales"]
        more = f", … ({len(scales)} columns)" if len(scales) > _LISTED_SCALES else ""
        rows.append(("divided by", ", ".join(f"{each:.6g}" for each in scales[:_LISTED_SCALES]) + more))
    return rows


def _analysis(estimate: Estimate) -> Rows:
    """Return the rows of what is said about the points."""
    found = estimate.analysis
    assert found is not None
    rows = [(f"{estimate.unit}s", f"all that count, of weight {found.total_weight:.10g}")]
    if found.groups is not None:
        left_out = f"; {found.groups.n_undefined} without a {estimate.unit} left out"
        n_groups = count_of(found.groups.n_groups, "group")
        weighted = f"the mean of {n_groups}, each with the weight {found.groups.weight}"
        rows.append(("groups", weighted + left_out * bool(found.groups.n_undefined)))
    if found.clusters is not None:
        names = ("x", "z") if len(found.clusters.with_points_of) == 2 else ()
        of_each = ", ".join(
            f"{n} with points of {name}" for n, name in zip(found.clusters.with_points_of, names, strict=False)
        )
        rows.append(("clusters", f"{found.clusters.n_clusters}" + f" ({of_each})" * bool(of_each)))
    if any(abs(n - size) > 1e-9 * size for n, size in zip(found.effective_sizes, estimate.sizes, strict=True)):
        worth = ", ".join(f"{n:.6g}" for n in found.effective_sizes)
        rows.append(("weights", f"worth {count_of(worth, 'point')} of equal weight"))
    return rows


def told_test(test: WaldTest) -> str:
    """Return a test for people."""
    what = f"is at most {test.null:g}" if test.one_sided else f"is {test.null:g}"
    return f"that it {what}: z = {test.z:.4g}, p {p_equals(test.p)}"


def p_equals(p: float) -> str:
    """Return a p-value as text: what it equals, or is less than."""
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def rows_of_tests(estimate: Estimate, tests: Sequence[WaldTest | None]) -> Rows:
    """Return the rows of the tests of an estimate's values; none where nothing is tested."""
    if not tests:
        return []
    names = [f"{name}: " for name in estimate.columns] or [""]
    rows = [f"{name}{told_test(test)}" for name, test in zip(names, tests, strict=True) if test is not None]
    return [("test" if j == 0 else "", row) for j, row in enumerate(rows)]


def _values(name: str, value: Any, error: ErrorBar | None, columns: tuple[str, ...]) -> Rows:
    rows = []
    for j, each in enumerate(np.atleast_1d(value).tolist()):
        after = "" if error is None else bar(error.stderr[j], error.intervals[j])
        column = f"{columns[j]}: " if columns else ""
        rows.append((name if j == 0 else "", f"{column}{each!r}{after}"))
    return rows


def _to_complete(estimate: Estimate, error: ErrorBar) -> str:
    """Return the standard error against U_n, and what it says."""
    known = error.stderr_to_complete
    if set(known) == {0.0}:
        return f"0: it is U_n, of all {estimate.unit}s of these points"
    if set(known) == {None}:
        return "not known"
    each = ", ".join("not known" if stderr is None else f"± {stderr:.3g}" for stderr in known)
    more = "rounds" if estimate.config.n_pairs is None else f"rounds or {estimate.unit}s"
    return f"{each}, what more {more} would remove; the ± above is to the population"


def _from_complete(estimate: Estimate) -> Rows:
    """Return how far the estimates are from U_n, in units of their standard errors against it."""
    apart = estimate.values - np.asarray(estimate.complete_value)
    units = (None,) * len(apart) if estimate.error is None else estimate.error.stderr_to_complete
    rows = []
    for j, (each, unit) in enumerate(zip(apart.tolist(), units, strict=True)):
        column = f"{estimate.columns[j]}: " if estimate.columns else ""
        in_units = f", {each / unit:.2f} times the ± to U_n" if unit else ""
        rows.append(("estimate - U_n" if j == 0 else "", f"{column}{each:.3g}{in_units}"))
    return rows


def bar(stderr: float | None, within: Interval) -> str:
    """Return a standard error and an interval as they stand after a value."""
    text = "" if stderr is None else f" ± {stderr:.3g}"  # an exact bound has none
    return text if within.lower is None else f"{text}, [{within.lower:.6g}, {within.upper:.6g}]"
