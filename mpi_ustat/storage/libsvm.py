"""Tables in LIBSVM's (SVMLight's) text: ``label feature:value feature:value …  # comment``, plain or gzip'd.

Features are numbered from 1 and ascend within a line; those that a line leaves out are 0. They are the columns ``1``,
``2``, …, and the column ``label`` holds the labels. ``qid:…`` after the label is passed over, and so are lines that
hold nothing but a comment or blanks. Only the columns that are asked for take memory, a float64 for every row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.numerics.types import Ints
from mpi_ustat.storage.opening import changed, opened_text
from mpi_ustat.storage.table import Column, FileTable, LabelledRows, NumberedColumns, not_float64, refuse_nan
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
        refuse_nan(values, wanted, lambda row: self._place(int(line_numbers[row])))
        if label is None:
            return LabelledRows(values)
        distinct, codes = np.unique(values[:, -1], return_inverse=True)
        return LabelledRows(values[:, :-1], codes.reshape(-1), tuple(map(repr, distinct.tolist())))

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


def _before_comment(line: bytes) -> bytes:
    return line.partition(b"#")[0]


def _short(text: str | bytes) -> str:
    return brief(text if isinstance(text, str) else text.decode("utf-8", "replace"))
