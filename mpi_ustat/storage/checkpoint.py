"""Checkpoints of runs: written aside, synced and renamed, and refused when they are of something else.

A run adds what is new to the file that it has written, as records after its end (see `mpi_ustat.storage.seal`), so that
what it writes over all checkpoints grows no faster than what the last one holds.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.files import append
from mpi_ustat.storage.results import Dataset, ResultFile, as_written, load, save
from mpi_ustat.storage.seal import record, records_of, seal_of
from mpi_ustat.storage.texts import shown


class Claim:
    """A file that this run replaces again and again, or adds records to, and no other run.

    Whoever holds `mpi_ustat.storage.files.locked` keeps others away. Without it, or where there are no locks, a run
    that is to write the file finds out, by the digest at its end, that it isn't the one any more that it has found or
    written, and refuses.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = os.fspath(path)
        self._seal = seal_of(path)
        self._steps = 0

    def steps(self) -> int:
        """Return how many steps are in the file, for records to go on from; 0 if it must be written whole."""
        return self._steps if os.path.exists(self.path) else 0

    def keep(self, identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], since: int, until: int) -> None:
        """Write the steps from `since` to `until`, the file whole if `since` is 0; only rank 0 calls it."""
        self._steps = 0  # if this fails, or is interrupted, the next writes all
        if since:
            with self._ours():
                assert self._seal is not None
                append(self.path, record(self._seal, _packed(arrays)))
        else:
            self.replace(checkpoint(identity, arrays))
        self._steps = until

    def replace(self, content: ResultFile) -> None:
        """Write the file; only rank 0 calls it."""
        with self._ours():
            save(self.path, content, overwrite=True)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        found = seal_of(self.path)
        if found is not None and found != self._seal:
            raise UserError(
                f"another run has written '{self.path}' meanwhile, which is kept: give each run a file of its own"
            )
        try:
            yield
        finally:  # an interrupt may come when it is written
            self._seal = seal_of(self.path)


def checkpoint(identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ResultFile:
    """Return a run's state as the content of a file; `identity`, for JSON, says which run it belongs to."""
    return ResultFile("checkpoint", dict(identity), {}, {name: Dataset(values) for name, values in arrays.items()}, {})


def read_checkpoint(path: Path | str, identity: Mapping[str, Any], step: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a checkpoint that belongs to `identity`; the one called `step` tells how far it is.

    Raises
    ------
    UserError
        If it can't be read, or belongs to other data or options; the message names what differs.
    """
    stored = load(path)
    if stored.kind != "checkpoint":
        raise UserError(f"{path} holds a result of kind {stored.kind!r}, not a checkpoint: give the checkpoint's name")
    if step not in stored.datasets:
        raise UserError(f"{path} is a checkpoint of another command: start afresh without resume=True")
    wanted = json.loads(json.dumps(dict(identity)))
    names = wanted.keys() | stored.config.keys()
    different = sorted(name for name in names if wanted.get(name) != stored.config.get(name))
    if different:
        first = different[0]
        raise UserError(
            f"{path} belongs to a run with other {' and '.join(map(shown, different))} ({shown(first)} was "
            f"{stored.config.get(first)!r}, is {wanted.get(first)!r}): resume with the same data and options, or start "
            "afresh without resume=True"
        )
    return {name: dataset.values for name, dataset in stored.datasets.items()}


def read_records(path: Path | str) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of each record after a checkpoint's end, but for a last one that is cut short."""
    with as_written(os.fspath(path)):
        return [_unpacked(each) for each in records_of(path)]


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as bytes: HDF5, and NumPy's own formats, take as long for them as a round may."""
    layout = json.dumps({name: (values.dtype.str, values.shape) for name, values in arrays.items()})
    return zlib.compress(b"\n".join([layout.encode(), b"".join(map(np.ndarray.tobytes, arrays.values()))]), 1)


def _unpacked(content: bytes) -> dict[str, NDArray[Any]]:
    layout, _, values = zlib.decompress(content).partition(b"\n")
    found: dict[str, NDArray[Any]] = {}
    start = 0
    for name, (dtype, shape) in json.loads(layout).items():
        found[name] = np.ndarray(tuple(shape), dtype, values, start).copy()
        start += found[name].nbytes
    return found
