"""Checkpoints of runs: written aside, synced and renamed, and refused when they are of something else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import Dataset, ResultFile, load, save
from mpi_ustat.storage.seal import seal_of
from mpi_ustat.storage.table import shown


class Claim:
    """A file that this run replaces again and again, and no other run.

    Others are kept away by `mpi_ustat.storage.files.locked`. Where there are no locks, a run that is to replace the
    file finds out, by the digest at its end, that it isn't the one any more that it has found or written.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path: Path | str) -> None:
        self.path = os.fspath(path)
        self._seal = seal_of(path)

    def replace(self, content: ResultFile) -> None:
        """Write the file; only rank 0 calls it.

        Raises
        ------
        UserError
            If another run has written it meanwhile.
        """
        found = seal_of(self.path)
        if found is not None and found != self._seal:
            raise UserError(
                f"another run has written '{self.path}' meanwhile, which is kept: give each run a file of its own"
            )
        try:
            save(self.path, content, overwrite=True)
        finally:  # an interrupt may come when it is written
            self._seal = seal_of(self.path)


def checkpoint(identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ResultFile:
    """Return what a run needs to go on as the content of a file; see `write_checkpoint`."""
    return ResultFile("checkpoint", dict(identity), {}, {name: Dataset(values) for name, values in arrays.items()}, {})


def write_checkpoint(path: Path | str, identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write what a run needs to go on; only rank 0 calls it.

    Parameters
    ----------
    path : path-like
        Replaced, whole, if it exists.
    identity : dict
        JSON-able: what the checkpoint belongs to.
    arrays : dict of str to ndarray
    """
    save(path, checkpoint(identity, arrays), overwrite=True)


def read_checkpoint(path: Path | str, identity: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a checkpoint that belongs to `identity`.

    Raises
    ------
    UserError
        If it can't be read, or belongs to other data or options; the message names what differs.
    """
    stored = load(path)
    if stored.kind != "checkpoint":
        raise UserError(f"{path} holds a result of kind {stored.kind!r}, not a checkpoint: give the checkpoint's name")
    wanted = json.loads(json.dumps(dict(identity)))
    names = wanted.keys() | stored.config.keys()
    different = sorted(name for name in names if wanted.get(name) != stored.config.get(name))
    if different:
        first = different[0]
        raise UserError(
            f"{path} belongs to a run with other {' and '.join(map(shown, different))} ({shown(first)} was "
            f"{stored.config.get(first)!r}, is {wanted.get(first)!r}): resume with the same data and options, or start "
            "afresh without --resume"
        )
    return {name: dataset.values for name, dataset in stored.datasets.items()}
