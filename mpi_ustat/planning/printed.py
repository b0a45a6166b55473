"""The table of the ways to choose from: what `print` and the command line show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.wording import count_of

if TYPE_CHECKING:
    from mpi_ustat.planning.plan import Choice, Plan


def plan_lines(found: Plan) -> list[str]:
    """Return the lines about a plan, but for what is recommended."""
    lines = [
        f"{count_of(len(found.choices), 'way')} compared; of each scheme, those that none is both as quick and as "
        "exact as.",
        "",
        f"{'scheme':<20}{'rounds':>7}{'pairs':>9}{'stderr':>12}{'seconds':>11}{'MB moved':>11}",
    ]
    for each in frontier(found.choices):
        pairs = "all" if each.n_pairs is None else str(each.n_pairs)
        mark = "  <- recommended" if each == found.recommended else ""
        lines.append(
            f"{way(each):<20}{each.n_rounds:>7}{pairs:>9}{each.stderr:>12.4g}{each.seconds:>11.4g}"
            f"{each.bytes_moved / 1e6:>11.4g}{mark}"
        )
    lines.append("")
    if found.uncertainty is not None:
        rows = " and ".join(map(str, found.pilot_sizes))
        lines.append(
            f"Standard errors are predicted from a pilot of {rows} rows, to about {100 * found.uncertainty:.2g} %."
        )
    return lines + [f"Beware: {flag}." for flag in found.flags]


def frontier(choices: tuple[Choice, ...]) -> list[Choice]:
    """Return the choices than which none of the same way is both as quick and as exact, way after way."""
    kept = []
    for each_way in dict.fromkeys(map(way, choices)):
        best = float("inf")
        for each in (choice for choice in choices if way(choice) == each_way):
            if each.stderr < best * (1.0 - 1e-9):
                kept.append(each)
                best = each.stderr
    return kept


def way(choice: Choice) -> str:
    """Return a choice's scheme, and what it moves."""
    return scheme_of(choice.scheme).way(choice.move)
