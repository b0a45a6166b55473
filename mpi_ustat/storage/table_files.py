"""Results as files that other programs read at once: JSON, CSV, Parquet. Written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.storage.files import write_whole

JSON, CSV, PARQUET = ".json", ".csv", ".parquet"
SUFFIXES = (JSON, CSV, PARQUET)


def suffix_of(path: str) -> str:
    """Return the suffix of a file, in small letters."""
    return os.path.splitext(path)[1].lower()


def other_suffix(path: str, allowed: Collection[str]) -> str:
    """Return the suffix of a name that promises another format than those allowed; nothing if it doesn't.

    >>> other_suffix("auc.txt", [".h5"]), other_suffix("auc-0.05", [".h5"])
    ('.txt', '')
    """
    suffix = suffix_of(path)
    return suffix if suffix[1:2].isalpha() and suffix not in allowed else ""


def check_package(path: str) -> None:
    """Refuse a file whose format needs a package that isn't installed."""
    if suffix_of(path) == PARQUET and find_spec("pyarrow") is None:
        raise UserError("Parquet is written by the package pyarrow: pip install 'mpi_ustat[parquet]'")


def write_table(
    path: str, rows: Sequence[Mapping[str, Any]], told: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Write a result in the format that the name of the file says.

    Parameters
    ----------
    path : str
        Ends in one of `SUFFIXES`.
    rows : sequence of mapping
        The table: the same names of columns in each; what CSV and Parquet hold.
    told : mapping
        All that is told of the result: what JSON holds, and Parquet as its metadata ``mpi_ustat``.
    overwrite : bool

    Raises
    ------
    UserError
        If there is such a file, or none can be written there.
    """
    suffix = suffix_of(path)
    if suffix == JSON:
        content = (json.dumps(told, allow_nan=False, indent=1) + "\n").encode()
    else:
        content = _as_csv(rows) if suffix == CSV else _as_parquet(rows, told)
    write_whole(path, content, overwrite=overwrite)


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the table as RFC 4180 has it, numbers with the shortest decimals that are the double, None as nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _as_parquet(rows: Sequence[Mapping[str, Any]], told: Mapping[str, Any]) -> bytes:
    import pyarrow
    from pyarrow.parquet import write_table as write

    names = list(rows[0]) if rows else []
    table = pyarrow.table({name: pyarrow.array(_of_one_type([row[name] for row in rows])) for name in names})
    table = table.replace_schema_metadata({"mpi_ustat": json.dumps(told, allow_nan=False)})
    stream = io.BytesIO()
    write(table, stream)
    return stream.getvalue()


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return a column whose values are all numbers or all texts; integers beyond 64 bits as doubles."""
    there = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in there):
        # File names whose bytes are not UTF-8 have lone surrogates.
        return [value if value is None else str(value).encode("utf-8", "replace").decode() for value in values]
    if any(isinstance(value, float) or abs(value) >= 2**63 for value in there):
        return [value if value is None else float(value) for value in values]
    return values
