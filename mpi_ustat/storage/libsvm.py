"""Tables in LIBSVM's (SVMLight's) text: ``label feature:value feature:value …  # comment``, plain or gzip'd.

Features are numbered from 1 and ascend within a line; those that a line leaves out are 0. They are the columns ``1``,
``2``, …, and the column ``label`` holds the labels. ``qid:…`` after the label is passed over, and so are lines that
hold nothing but a comment or blanks. Only the columns that are asked for take memory, a float64 for every row.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.storage.opening import changed, opened_text, unchanged
from mpi_ustat.storage.table import Column, FileTable, LabelledRows, NumberedColumns, not_float64, refuse_bad_values
from mpi_ustat.storage.texts import as_number, brief, is_rounded

LABEL = "label"
"""The name of the column of labels."""

MOST_FEATURES = 1 << 22
"""Features that a file can have; a larger number is taken for a damaged line."""

_KIND = "LIBSVM text"
_STRIDE = 4096
"""Rows from one entry of the index to the next."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LibsvmTable(FileTable):
    """A file in LIBSVM's format, with an index to its rows."""

    n_rows: int
    n_features: int
    """The largest number of a feature; more, when other files of the same data have more."""
    starts: Ints = field(repr=False, compare=False)
    lines: Ints = field(repr=False, compare=False)
    """Where every 4096th row begins: the byte (of the text, not of its compressed form) and the line, from 1."""

    default_label = LABEL

    @property
    def columns(self) -> NumberedColumns:
        """The label, and the features by their numbers."""
        return NumberedColumns(LABEL, self.n_features, self.n_rows)

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        wanted = list(columns) if label is None else [*columns, label]
        values = np.zeros((last - first, len(wanted)))
        line_numbers = np.empty(last - first, dtype=np.int64)
        place_of = {column.index: j for j, column in enumerate(wanted)}
        n_read = 0
        with self._rows(first, last) as rows:
            for row, (line, text) in enumerate(rows):
                line_numbers[row] = line
                for j, value in self._cells(text.split(), place_of, line):
                    values[row, j] = self._number(value, wanted[j], line)
                n_read = row + 1
        if n_read < last - first:  # the others would be zeros
            raise changed(self.path, "another number of rows")
        for j, column in enumerate(wanted):  # asked for twice
            if place_of[column.index] != j:
                values[:, j] = values[:, place_of[column.index]]
        refuse_bad_values(values, wanted, lambda row: self._place(int(line_numbers[row])))
        return LabelledRows(values) if label is None else _labelled(values[:, :-1], values[:, -1])

    def read_sparse(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the rows ``first:last`` of some columns, without their zeros: what takes memory is what they write."""
        if first == last:
            return LabelledRows(SparseRows.none(len(columns)))
        place_of = {column.index: j for j, column in enumerate(columns)}
        if len(place_of) < len(columns):  # asked for twice
            rows = self.read(columns, label, first, last)
            return LabelledRows(SparseRows.of_dense(rows.values), rows.label_codes, rows.label_texts)
        wanted = list(columns) if label is None else [*columns, label]
        if label is not None:
            place_of[label.index] = len(columns)
        places, lengths, values, labels = array("q"), array("q"), array("d"), array("d")
        with unchanged(self.path, self.stamp), self._rows(first, last) as found:
            for line, text in found:
                before, own = len(places), 0.0
                for j, token in self._cells(text.split(), place_of, line):
                    value = self._number(token, wanted[j], line)
                    if not isfinite(value):
                        self._refuse(value, wanted[j], line)
                    if j == len(columns):
                        own = value
                    elif value != 0.0:
                        places.append(j)
                        values.append(value)
                labels.append(own)
                lengths.append(len(places) - before)
            if len(labels) < last - first:
                raise changed(self.path, "another number of rows")
        at, of_rows = np.frombuffer(places, dtype=np.int64), np.frombuffer(lengths, dtype=np.int64)
        order = np.lexsort((at, np.repeat(np.arange(len(of_rows)), of_rows)))  # columns may be wanted in any order
        found_rows = SparseRows.of_lengths(of_rows, at[order], np.frombuffer(values)[order], len(columns))
        return LabelledRows(found_rows) if label is None else _labelled(found_rows, np.frombuffer(labels))

    def _cells(self, tokens: list[bytes], place_of: dict[int, int], line: int) -> Iterator[tuple[int, bytes]]:
        """Yield the places and texts of the label and the features, of those that are asked for."""
        labelled = tokens[0].decode("utf-8", "replace")
        if as_number(labelled) is None:
            raise PlacedError(
                f"{self._place(line)} begins with '{_short(labelled)}', which is no label: "
                "write the label, a number, before the features"
            )
        if 0 in place_of:
            yield place_of[0], tokens[0]
        previous = 0
        for token in islice(tokens, 1 + (len(tokens) > 1 and tokens[1].startswith(b"qid:")), None):
            index, colon, value = token.partition(b":")
            if not (colon and index.isdigit()):
                raise PlacedError(
                    f"{self._place(line)} has '{_short(token)}', which is no feature:value: correct the line"
                )
            feature = int(index)
            if feature <= previous:
                rule = "they ascend within a line" if feature else "they are numbered from 1"
                raise PlacedError(f"{self._place(line)} has feature {feature} out of order: {rule}, correct the file")
            previous = feature
            if feature in place_of:
                yield place_of[feature], value

    def _number(self, token: bytes, column: Column, line: int) -> float:
        text = token.decode("utf-8", "replace")
        value = as_number(text)
        if value is None:
            raise PlacedError(
                f"{self._place(line)}: column '{column.name}' has '{_short(text)}', which is not a number: "
                "correct it or choose another column"
            )
        if is_rounded(value, text):
            raise not_float64(text, self._place(line), column)
        return value

    def _refuse(self, value: float, column: Column, line: int) -> None:
        """Refuse a NaN, or an infinite value where there may be none."""
        refuse_bad_values(np.array([[value]]), [column], lambda _: self._place(line))

    def _place(self, line: int) -> str:
        return f"'{self.name}', line {line}"

    @contextmanager
    def _rows(self, first: int, last: int) -> Iterator[Iterator[tuple[int, bytes]]]:
        """Open the file and give the rows ``first:last``: their lines' numbers, and what stands before a comment."""
        entry, skipped = divmod(first, _STRIDE)
        with opened_text(self.path, _KIND) as stream:
            stream.seek(int(self.starts[entry]))
            numbered = ((number, _before_comment(line)) for number, line in enumerate(stream, int(self.lines[entry])))
            rows = ((number, text) for number, text in numbered if text.strip())
            yield islice(rows, skipped, skipped + last - first)


def scan(path: str) -> LibsvmTable:
    """Find out the number of rows and features of a file in LIBSVM's format."""
    name = os.path.basename(path)
    starts, lines = [], []
    n_rows = n_features = position = 0
    with opened_text(path, _KIND) as stream:
        for number, line in enumerate(stream, 1):
            begin = position + (len(_BOM) if position == 0 and line.startswith(_BOM) else 0)
            text = _before_comment(line[begin - position :])
            position += len(line)
            if not text.strip():
                continue
            if n_rows % _STRIDE == 0:
                starts.append(begin)
                lines.append(number)
            n_rows += 1
            index = text.rsplit(None, 1)[-1].partition(b":")  # the last feature is the largest, or `read` refuses
            if index[1] and index[0].isdigit():
                if len(index[0]) > 9 or int(index[0]) > MOST_FEATURES:
                    raise UserError(
                        f"'{name}', line {number} has feature {_short(index[0])}, of at most {MOST_FEATURES}: "
                        "correct the line or renumber the features"
                    )
                n_features = max(n_features, int(index[0]))
    if n_rows == 0:
        raise UserError(f"'{name}' is empty: give a file with data")
    return LibsvmTable(path, n_rows, n_features, np.array(starts, dtype=np.int64), np.array(lines, dtype=np.int64))


def _labelled(values: Any, labels: Floats) -> LabelledRows:
    distinct, codes = np.unique(labels, return_inverse=True)
    return LabelledRows(values, codes.reshape(-1), tuple(map(repr, distinct.tolist())))


def _before_comment(line: bytes) -> bytes:
    return line.partition(b"#")[0]


def _short(text: str | bytes) -> str:
    return brief(text if isinstance(text, str) else text.decode("utf-8", "replace"))
