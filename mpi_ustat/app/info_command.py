"""`mpi-ustat info`: result files as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.app.inference_sections import SHOWN_APART, inference_sections
from mpi_ustat.estimation.by_default import ABOUT_ROUNDS
from mpi_ustat.kernels.registry import KERNELS
from mpi_ustat.paper.experiments_coverage import coverage_table, has_verdicts
from mpi_ustat.storage.checkpoint import read_records
from mpi_ustat.storage.results import Dataset, ResultFile, as_written, load
from mpi_ustat.storage.texts import shown
from mpi_ustat.wording import plural

_PROVENANCE_FIRST = ("command", "version", "git_commit", "started", "wall_seconds", "n_ranks", "n_workers", "seed")


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser("info", help="print what is in a result file")
    parser.add_argument("file", metavar="F.h5")
    parser.set_defaults(run=run_command, serial=True)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Print what is in the file."""
    result = load(arguments.file)
    with as_written(arguments.file):
        text = describe(result)
        if records := read_records(arguments.file):
            text += f"\n\nrecords after that, up to round {int(records[-1]['round'])}: {len(records)}"
    print(text)
    return 0


def describe(result: ResultFile) -> str:
    """Return the content of a result file as text: key numbers first, then where they come from.

    Parameters
    ----------
    result : ResultFile
        Of any kind; for estimates and coverage a table of the numbers that matter comes first.

    Returns
    -------
    str
        Several lines, without a newline at the end.
    """
    sections = [f"kind: {shown(result.kind)}"]
    if result.kind in ("estimate", "test"):
        sections.append(_section("result", _estimate_rows(result)))
        sections += [_section(title, rows) for title, rows in inference_sections(result)]
    if result.kind == "coverage" and has_verdicts(result):
        sections.append(coverage_table(result))
    options = {name: value for name, value in result.config.items() if name not in (*SHOWN_APART, *_unused(result))}
    sections.append(_section("options", _flatten(options)))
    sections.append(_section("provenance", _provenance_rows(result.provenance)))
    sections.append(_dataset_section(result.datasets))
    return "\n\n".join(section for section in sections if section)


def _unused(result: ResultFile) -> set[str]:
    """Return the options of an estimate that its result doesn't depend on."""
    config = result.config
    if result.kind != "estimate":
        return set()
    kernel = KERNELS.get(config.get("kernel", ""))
    unused = set(ABOUT_ROUNDS) if config.get("complete") else set()
    unused |= {"confidence", "interval"} if config.get("stderr") is False else set()
    unused |= {"tile"} if kernel is not None and not kernel.tile else set()
    return unused | {name for name, value in config.items() if value in ("", [], {})}


def _estimate_rows(result: ResultFile) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    scalars = (
        ("estimate", "estimate", _exact),
        ("standard error", "stderr", _rounded),
        ("standard error to U_n", "stderr_to_complete", _rounded),
        ("complete value", "complete_value", _exact),
        ("pairs", "n_pairs", _grouped),
    )
    for label, name, form in scalars:
        if name in result.datasets:
            values = np.atleast_1d(result.datasets[name].values)
            names = result.config.get("columns") or [str(j) for j in range(len(values))]
            several = len(values) > 1
            rows += [
                (f"{label}, {names[j]}" if several else label, form(value)) for j, value in enumerate(values.tolist())
            ]
    rows += _spread_rows(result, "round", "per_round/value")
    rows += _spread_rows(result, "worker", "per_worker/value")
    if "per_round/rows_moved" in result.datasets:
        rows.append(("rows moved", _grouped(result.datasets["per_round/rows_moved"].values.sum())))
    if "per_round/bytes_moved" in result.datasets:
        rows.append(("bytes moved", _byte_size(int(result.datasets["per_round/bytes_moved"].values.sum()))))
    for name, dataset in result.datasets.items():
        if name.startswith("seconds/"):
            rows.append((f"time, {name.removeprefix('seconds/')}", f"{float(dataset.values):.3g} s"))
    return rows


def _spread_rows(result: ResultFile, what: str, name: str) -> list[tuple[str, str]]:
    """Tell how many values there are and where they lie, when there is more than one."""
    if name not in result.datasets:
        return []
    values = result.datasets[name].values
    present = values[~np.isnan(values)]
    if present.size < 2:
        return []
    shape = " × ".join(str(length) for length in values.shape)
    skipped = f", {values.size - present.size} without pairs" if present.size < values.size else ""
    low, high = _rounded(present.min()), _rounded(present.max())
    return [(f"values per {what}", f"{low} to {high} ({shape}{skipped})")]


def _provenance_rows(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = [name for name in _PROVENANCE_FIRST if name in provenance]
    names += sorted(provenance.keys() - set(_PROVENANCE_FIRST))
    return [(name, _plain(provenance[name])) for name in names]


def _dataset_section(datasets: Mapping[str, Dataset]) -> str:
    rows = []
    for name, dataset in datasets.items():
        unit = f" [{dataset.unit}]" if dataset.unit else ""
        rows.append((name, f"{_shape(dataset.values, dataset.dims)}{unit}", dataset.description))
    return _section("datasets", rows)


def _shape(values: NDArray[Any], dims: tuple[str, ...]) -> str:
    if not values.ndim:
        return "scalar"
    names = dims or ("",) * values.ndim
    return " × ".join(f"{length} {name}".strip() for length, name in zip(values.shape, names, strict=True))


def _flatten(options: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _plain(value)))
    return rows


def _section(title: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Lay out rows in columns under a title; nothing if there are no rows."""
    # What a file says must not steer the terminal.
    table = [tuple(map(shown, row)) for row in rows]
    if not table:
        return ""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _exact(value: Any) -> str:
    """All digits that identify the double: results are compared bit by bit."""
    return repr(float(value))


def _rounded(value: Any) -> str:
    return f"{float(value):.4g}"


def _grouped(value: Any) -> str:
    return f"{int(value):,}".replace(",", " ")


def _byte_size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{_grouped(count)} {plural(count, 'byte')}" if unit == "bytes" else f"{size:.3g} {unit}"
