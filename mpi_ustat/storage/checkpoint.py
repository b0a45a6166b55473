"""Checkpoints of runs: written aside, synced and renamed, and refused when they are of something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import Dataset, ResultFile, load, save


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
    datasets = {name: Dataset(values) for name, values in arrays.items()}
    save(path, ResultFile("checkpoint", dict(identity), {}, datasets, {}), overwrite=True)


def read_checkpoint(path: Path | str, identity: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a checkpoint that belongs to `identity`.

    Raises
    ------
    UserError
        If it can't be read, or belongs to other data or options; the message names what differs.
    """
    stored = load(path)
    if stored.kind != "checkpoint":
        raise UserError(f"{path} holds a result of kind '{stored.kind}', not a checkpoint: give the checkpoint's name")
    wanted = json.loads(json.dumps(dict(identity)))
    names = wanted.keys() | stored.config.keys()
    different = sorted(name for name in names if wanted.get(name) != stored.config.get(name))
    if different:
        first = different[0]
        raise UserError(
            f"{path} belongs to a run with other {' and '.join(different)} ({first} was {stored.config.get(first)!r}, "
            f"is {wanted.get(first)!r}): resume with the same data and options, or start afresh without --resume"
        )
    return {name: dataset.values for name, dataset in stored.datasets.items()}
