"""Files of scores, one for each row of some data, written a piece at a time: text, or a result file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import h5py
import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.files import written_whole
from mpi_ustat.storage.results import ResultFile, make_dimension, write_attributes
from mpi_ustat.storage.seal import seal

TEXT = ".csv"
HDF5 = (".h5", ".hdf5")

_TYPE = np.dtype("<f8")


def is_text(path: str) -> bool:
    """Tell whether scores are written to this file as text.

    Raises
    ------
    UserError
        If its name says that it is something else than text or HDF5.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (TEXT, *HDF5):
        raise UserError(f"'{path}' names no format that scores are written in: end its name in {TEXT} or {HDF5[0]}")
    return suffix == TEXT


def as_bytes(scores: Floats, *, text: bool) -> bytes:
    """Return scores as they stand in a file: 8 bytes each, or lines with the shortest decimals that are the double."""
    return "".join(f"{score!r}\n" for score in scores.tolist()).encode() if text else scores.astype(_TYPE).tobytes()


class ScoreFile(Protocol):
    """A file of scores that is being written."""

    def add(self, content: bytes) -> None:
        """Write the next scores, as `as_bytes` gives them."""

    def finish(self, told: ResultFile) -> None:
        """Write what is told of them, where there is place for it."""


@contextmanager
def score_file(path: str, n_rows: int, *, overwrite: bool = False) -> Iterator[ScoreFile]:
    """Give a file of `n_rows` scores to be written, which has its name when the context ends without an error."""
    kind = _Text if is_text(path) else _Stored
    with written_whole(path, overwrite=overwrite) as file:
        yield kind(file, n_rows)


class _Text:
    """One column, with its name."""

    def __init__(self, file: BinaryIO, n_rows: int) -> None:
        self._file = file
        file.write(b"score\n")

    def add(self, content: bytes) -> None:
        self._file.write(content)

    def finish(self, told: ResultFile) -> None:
        """Text says nothing of itself."""


class _Stored:
    """A result file with the dataset ``score``.

    The HDF5 library writes what is told of the scores, some kilobytes. The place of the scores themselves is taken
    before, and they are written there by plain writes, which say clearly that a disk is full.
    """

    def __init__(self, file: BinaryIO, n_rows: int) -> None:
        self._file = file
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.CONTIGUOUS)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        layout.set_obj_track_times(False)
        with h5py.File(file, "w") as stored:
            space = h5py.h5s.create_simple((n_rows,))
            kind = h5py.h5t.py_create(_TYPE)
            dataset = h5py.Dataset(h5py.h5d.create(stored.id, b"score", kind, space, dcpl=layout))
            dataset.dims[0].label = "row"
            make_dimension(stored, "row", n_rows)
            dataset.dims[0].attach_scale(stored["row"])
            dataset.attrs["description"] = "of each row of the data, in their order"
            self._place = int(dataset.id.get_offset())
        if n_rows:
            os.posix_fallocate(file.fileno(), self._place, n_rows * _TYPE.itemsize)

    def add(self, content: bytes) -> None:
        self._file.seek(self._place)
        self._file.write(content)
        self._place += len(content)

    def finish(self, told: ResultFile) -> None:
        self._file.flush()
        with h5py.File(self._file, "r+") as stored:
            write_attributes(stored, told)
        seal(self._file)


def told_of(config: dict[str, Any], provenance: dict[str, Any]) -> ResultFile:
    """Return the facts that a file of scores holds about them."""
    return ResultFile("predict", config, provenance)
