"""Blocks of lines without surprises, which fast parsers read as the careful one does: to the same bits, or not at all.

What makes lines simple: they are UTF-8, end with LF or CR LF, and have quotation marks only around whole cells, without
further ones inside. pyarrow's parser is strict beyond that: rows with another number of cells, and cells that are no
numbers, are errors, which leave the block, and what is said of it, to the careful parser. So are the numbers that only
NumPy's parser takes, such as +1. Both round correctly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.table import Codes, no_codes

_BOM = b"\xef\xbb\xbf"
_ODD_BLANKS = b"\x0b\x0c\x1c\x1d\x1e\x1f"
_FROM = 1 << 20
"""Smaller blocks are not worth the import of pyarrow."""

Cells = tuple[dict[int, Floats], Codes, list[str]]
"""Columns of numbers by their places in a line, and the codes and texts of a column of labels."""


def simplified(data: bytes, delimiter: str) -> bytes | None:
    """Return lines with one byte between cells, if they are simple; `delimiter` may be a blank, for runs of blanks."""
    if data.startswith(_BOM) or b"\0" in data or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
        return None
    if delimiter == " ":
        odd = not data.isascii() or b'"' in data or len(data.translate(None, _ODD_BLANKS)) < len(data)
        return None if odd else _with_single_blanks(data)
    if not data.isascii() and not _is_utf8(data):
        return None
    if b'"' in data and b'"' in _quoted_cells(delimiter).sub(b"", data):
        return None
    return data


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@functools.cache
def _quoted_cells(delimiter: str) -> re.Pattern[bytes]:
    """Return the pattern of cells with quotation marks around them; if these are all, every one begins a true cell."""
    mark = delimiter.encode()
    return re.compile(rb'(?<![^%b\n])"[^"\r\n]*"(?![^%b\r\n])' % (mark, mark))


def _with_single_blanks(data: bytes) -> bytes:
    data = data.replace(b"\t", b" ")
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data.replace(b" \r\n", b"\n").replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")


def has_cells(data: bytes, delimiter: str, n_cells: int) -> bool:
    """Return whether each line has so many cells, and isn't blank; `data` have no quotation marks."""
    if not data.endswith(b"\n"):
        data += b"\n"
    values = np.frombuffer(data, dtype=np.uint8)
    is_newline = values == ord("\n")
    ends = is_newline[is_newline | (values == ord(delimiter))]
    return len(ends) % n_cells == 0 and bool((ends.reshape(-1, n_cells) == (np.arange(n_cells) == n_cells - 1)).all())


def cells_by_arrow(
    data: bytes, delimiter: str, decimal: str, n_cells: int, numbers: Sequence[int], label: int | None
) -> Cells | None:
    """Return cells of simple lines; None if pyarrow is not there, or refuses them.

    Parameters
    ----------
    data : bytes
        The lines.
    delimiter, decimal : str
        Between the cells, and in numbers.
    n_cells : int
        How many there are in a line.
    numbers : sequence of int
        The columns that hold numbers, all of them different.
    label : int or None
        The column of labels, another one.
    """
    csv = None if len(data) < _FROM else _arrow_csv()
    if csv is None:
        return None
    import pyarrow

    names = [str(j) for j in range(n_cells)]
    types = {names[j]: pyarrow.float64() for j in numbers}
    if label is not None:
        types[names[label]] = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    try:
        table = csv.read_csv(
            pyarrow.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[], decimal_point=decimal),
        )
    except pyarrow.ArrowInvalid:
        return None
    values = {j: table.column(names[j]).to_numpy() for j in numbers}
    if any(np.isnan(column).any() for column in values.values()):  # there are writings of it that NumPy doesn't take
        return None
    if label is None:
        return values, no_codes(), []
    (chunk,) = table.column(names[label]).chunks
    return values, chunk.indices.to_numpy(), chunk.dictionary.to_pylist()


@functools.cache
def _arrow_csv() -> Any:
    """Return pyarrow's module for delimited text, None if there is none: it is no dependency."""
    try:
        from pyarrow import csv
    except ImportError:
        return None
    return csv
