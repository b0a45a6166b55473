"""Columns of Parquet files, through the package pyarrow: a rank reads the row groups that hold its rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.stored import StoredArray


@contextmanager
def opened(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open a Parquet file and give its columns by name."""
    with open(path, "rb") as stream:  # pyarrow takes no names beyond UTF-8
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            raise UserError("Parquet is read by the package pyarrow: pip install 'mpi_ustat[parquet]'") from error
        file = ParquetFile(stream)
        name, count = Counter(file.schema_arrow.names).most_common(1)[0] if file.schema_arrow.names else ("", 1)
        if count > 1:
            raise ValueError(f"{count} columns are called '{name}'")
        index = _index_of_pandas(file.schema_arrow.metadata or {})
        yield {field.name: _ParquetColumn(file, field, field.name in index) for field in file.schema_arrow}


def _index_of_pandas(metadata: Mapping[bytes, bytes]) -> set[str]:
    """Return the names of the columns that are the index of the data frame which pandas has written."""
    try:
        found = json.loads(metadata.get(b"pandas", b"{}"))["index_columns"]
        return {name for name in found if isinstance(name, str)}  # an index that only counts is no column
    except (ValueError, KeyError, TypeError):
        return set()


class _ParquetColumn(StoredArray):
    rows_at_a_time: int | None = None  # a row group is decoded whole

    def __init__(self, file: Any, field: Any, is_index: bool) -> None:
        self.shape: tuple[int, ...] = (file.metadata.num_rows,)
        self.holds = _holds(field.type)
        self.is_index = is_index
        self._file, self._name = file, field.name

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        parts = []
        start = 0
        for group in range(self._file.metadata.num_row_groups):
            stop = start + self._file.metadata.row_group(group).num_rows
            if start < last and first < stop:
                column = self._file.read_row_group(group, columns=[self._name], use_threads=False).column(0)
                begin = max(first - start, 0)
                parts.append(self._to_numpy(column.slice(begin, min(last, stop) - start - begin)))
            start = stop
        return np.concatenate(parts)[:, np.newaxis]

    def _to_numpy(self, column: Any) -> NDArray[Any]:
        """Return values, of which the missing ones are NaN or empty texts."""
        import pyarrow

        if pyarrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if self.holds == "text":
            return np.asarray(column.fill_null("").to_numpy(), dtype=np.str_)
        if pyarrow.types.is_boolean(column.type):
            column = column.cast(pyarrow.uint8())  # with missing values it would become objects
        return np.asarray(column.to_numpy())


def _holds(kind: Any) -> str:
    from pyarrow import types

    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return "numbers"
    text = kind.value_type if types.is_dictionary(kind) else kind
    return "text" if types.is_string(text) or types.is_large_string(text) else f"values of type {kind}"
