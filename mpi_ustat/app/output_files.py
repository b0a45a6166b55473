"""Where commands write: under names that say what the files are, and never over what they read."""

from __future__ import annotations

import argparse
import fnmatch
import glob
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import combinations

from mpi_ustat.errors import UserError
from mpi_ustat.storage.arrays import files_behind
from mpi_ustat.storage.files import absolute, same_file
from mpi_ustat.storage.results import SUFFIXES as HDF5_SUFFIXES
from mpi_ustat.storage.several import is_pattern, matching
from mpi_ustat.storage.table_files import SUFFIXES, check_package, other_suffix

CHECKPOINT_SUFFIXES = (*HDF5_SUFFIXES, ".ck", ".ckpt", ".chk", ".checkpoint")

_ALLOWED = {"output": HDF5_SUFFIXES, "checkpoint": CHECKPOINT_SUFFIXES}


def check_names(outputs: Mapping[str, str | None], inputs: Iterable[str], *, tables: bool = False) -> None:
    """Refuse outputs that would replace an input or each other, and names that promise another format than is written.

    Parameters
    ----------
    outputs : mapping of str to (str or None)
        What is to be written where, such as ``{"output": "auc.h5", "checkpoint": None}``.
    inputs : iterable of str
        What is read: files, or patterns of them.
    tables : bool
        Whether the output may be a table instead of an HDF5 file.

    Raises
    ------
    UserError
        Also where an output is an input by another name: through links, or as one of those that a pattern matches.
    """
    given = {what: path for what, path in outputs.items() if path is not None}
    sources = list(inputs)
    for what, path in given.items():
        for source in sources:
            if _reads(source, path):
                raise UserError(
                    f"the {what} '{path}' is also read, as '{source}', and would replace it: give another name"
                )
    for (one, first), (another, second) in combinations(given.items(), 2):
        if same_file(first, second):
            raise UserError(f"'{first}' can't be {one} and {another} at once: give the two different names")
    for what, path in given.items():
        as_table = tables and what == "output"
        allowed = (*_ALLOWED.get(what, ()), *(SUFFIXES if as_table else ()))
        if allowed and (suffix := other_suffix(path, allowed)):
            others = "in .json, .csv or .parquet for a table" if as_table else "for text there is --json"
            raise UserError(
                f"the {what} '{path}' would be an HDF5 file, not what '{suffix}' says: end its name in .h5 ({others}, "
                "for pictures mpi-ustat plot)"
            )
        if as_table:
            check_package(path)


def keep_places(arguments: argparse.Namespace) -> None:
    """Make the outputs' paths absolute: a user's code may change the folder."""
    for name in _ALLOWED:
        if getattr(arguments, name, None) is not None:
            setattr(arguments, name, absolute(getattr(arguments, name)))


def _reads(source: str, path: str) -> bool:
    """Tell whether a path is an input, or holds what one shows, or would be one of a pattern's once it exists."""
    files: tuple[str, ...] = () if is_pattern(source) else (source,)
    if is_pattern(source):
        with suppress(UserError):
            files = matching(source)
    there = os.path.isfile(path)  # else there is nothing to lose
    if any(same_file(each, path) for file in files for each in (file, *(files_behind(file) if there else ()))):
        return True
    if not is_pattern(source):
        return False
    folders, pattern = os.path.split(source)
    folder, name = os.path.split(path)
    hidden = name.startswith(".") and not pattern.startswith(".")
    if hidden or not fnmatch.fnmatchcase(name, pattern):
        return False
    return any(same_file(each, folder or os.curdir) for each in glob.glob(folders) or [os.curdir])
