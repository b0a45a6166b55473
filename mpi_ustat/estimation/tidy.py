"""Results as tidy tables: a row for each value, with what is known of it in columns of the same names.

    quantity    statistic  value    stderr  lower   upper   confidence  stderr_to_complete  null  z     p
    estimate    old        0.811    0.0186  0.772   0.845   0.95        0                   0.5   16.7  9e-63
    estimate    new        0.835    0.0174  0.798   0.867   0.95        0                   0.5   19.2  1e-82
    difference  old - new  -0.0241  0.0112  -0.046  -0.002  0.95                            0     -2.1  0.031

They are made of what the results' ``summary()`` gives, and of nothing else: JSON's numbers, texts, lists and mappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Row = dict[str, Any]
"""Numbers, texts, truth values, or None where something isn't known, by the names of columns."""

_ALWAYS = ("quantity", "statistic", "value", "stderr", "lower", "upper", "confidence", "stderr_to_complete")
_TESTED = ("null", "z", "p")
"""Columns of every table, so that tables can be put together."""
_SOMETIMES = ("p_holm", "round", "group", "pairs")


def tidy(summary: Mapping[str, Any], names: Sequence[str] = ()) -> list[Row]:
    """Return a result as rows that all have the same columns.

    Parameters
    ----------
    summary : mapping
        What ``summary()`` of an `Estimate`, `TestResult`, `SamplesTest` or `Plan` returns, and optionally
        ``differences``, ``groups`` (of lists ``group``, ``value`` and ``pairs``) and ``classes``, names of samples.
    names : sequence of str
        What each statistic is of, where the summary doesn't say it: its column; by default the kernel.

    Returns
    -------
    list of dict
        Of a plan its choices; of all else one row for each value, of which ``quantity`` says what it is: ``estimate``,
        ``complete`` (the statistic over all pairs, of an estimate with a reference), ``difference``, ``bias``,
        ``round`` (of several), ``group``, ``pair`` (of samples in a test). ``statistic``
        is what it is of.
    """
    if "choices" in summary:
        return [{**choice, "recommended": choice == summary.get("recommended")} for choice in summary["choices"]]
    rows = list(_values(summary, names))
    columns = [*_ALWAYS, *_TESTED, *(name for name in _SOMETIMES if any(name in row for row in rows))]
    level = summary.get("confidence")
    within = ({"confidence": level if row.get("lower", row.get("upper")) is not None else None} for row in rows)
    return [{name: (row | each).get(name) for name in columns} for row, each in zip(rows, within, strict=True)]


def _values(summary: Mapping[str, Any], given: Sequence[str]) -> Iterator[Row]:
    several = isinstance(summary["estimate"], Sequence)
    estimates = _listed(summary["estimate"])
    default = [str(j) for j in range(len(estimates))] if several else [summary["kernel"]]
    names = summary.get("columns") or [name or other for name, other in zip_longest(given, default)]
    about = {
        "value": estimates,
        "stderr": _listed(summary.get("stderr")),
        "interval": _listed(summary.get("interval")) if several else [summary.get("interval")],
        "stderr_to_complete": _listed(summary.get("stderr_to_complete")),
        "test": summary.get("tests") or [],
    }
    of_samples = {"p": summary["p"]} if "p" in summary else {}
    for name, *of_one in zip_longest(names, *about.values()):
        yield _row("estimate", name, **dict(zip(about, of_one, strict=True))) | of_samples
    if not summary.get("complete"):
        errors = _listed(summary.get("complete_stderr"))
        for name, value, stderr in zip_longest(names, _listed(summary.get("complete_value")), errors):
            if value is not None:
                yield _row("complete", name, value, stderr)
    for each in summary.get("differences", ()):
        interval = [each["interval"]["lower"], each["interval"]["upper"]]
        yield _row("difference", of_difference(each, names), each["value"], each["stderr"], interval, test=each["test"])
    for each in summary.get("bias", ()):
        yield _row("bias", each["aggregate"], each["difference"], each["stderr"])
    rounds = summary.get("per_round", ())
    for t, values in enumerate(rounds if len(rounds) > 1 else ()):
        for name, value in zip(names, _listed(values), strict=True):
            yield _row("round", name, value) | {"round": t}
    groups = summary.get("groups", {"group": (), "value": (), "pairs": ()})
    for group, values, pairs in zip(groups["group"], groups["value"], groups["pairs"], strict=True):
        for name, value in zip(names, _listed(values, or_none=True), strict=True):
            yield _row("group", name, value) | {"group": group, "pairs": pairs}
    for each in summary.get("pairs", ()):
        row = _row("pair", of_pair(each, summary.get("classes")), each["value"])
        yield row | {"p": each["p"], "p_holm": each["p_holm"]}


def of_difference(each: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what a difference is of."""
    return f"{names[each['first']]} - {names[each['second']]}"


def of_pair(each: Mapping[str, Any], classes: Sequence[str] | None) -> str:
    """Return of which two samples a test is: their names, or their numbers where they have none."""
    return ", ".join(str(k if classes is None else classes[k]) for k in (each["first"], each["second"]))


def _row(
    quantity: str,
    name: str,
    value: float | None,
    stderr: float | None = None,
    interval: Sequence[float | None] | None = None,
    stderr_to_complete: float | None = None,
    test: Mapping[str, Any] | None = None,
) -> Row:
    row: Row = {"quantity": quantity, "statistic": name, "value": value, "stderr": stderr}
    row |= dict(zip(("lower", "upper"), interval or (), strict=False))
    row |= {} if test is None else {part: test[part] for part in _TESTED}
    return row | {"stderr_to_complete": stderr_to_complete}


def _listed(value: Any, *, or_none: bool = False) -> Sequence[Any]:
    """Return the values as a list, also where there is one only; an empty one for None."""
    if value is None and not or_none:
        return []
    return value if isinstance(value, Sequence) else [value]
