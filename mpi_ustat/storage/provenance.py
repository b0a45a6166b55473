"""Where a result comes from: the command, the versions and the circumstances of the run that made it."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import mpi_ustat

LIBRARIES = ("numpy", "scipy", "h5py", "mpi4py")
"""What computes beside this package, and whose versions matter."""

_FOLDERS = re.compile(r"(^|[=,:])/+(?:[^/=,:]*/+)*")


def provenance(
    argv: Sequence[str],
    *,
    started: float,
    wall_seconds: float,
    mpi_library: str = "",
    numbers: Mapping[str, int | None] = MappingProxyType({}),
) -> dict[str, str | int | float]:
    """Return where a result comes from, as the root attributes of its file.

    Parameters
    ----------
    argv : sequence of str
        The command line, program first (`sys.argv`). Of the program and of absolute paths, which identify people and
        machines, only the base names are kept.
    started : float
        When the run began, in seconds since the epoch (`time.time()`).
    wall_seconds : float
        How long it took.
    mpi_library : str
        `MPI.Get_library_version()`, of which the name and version are kept.
    numbers : dict of int or None
        By the names of attributes: how many ranks and workers, the seed; left out when None.

    What cannot be found out (a library that is not installed, the commit of an installed package) is left out.
    """
    command = [os.path.basename(argv[0]), *map(without_folders, argv[1:])] if argv else []
    found: dict[str, str | int | float | None] = {
        # File names whose bytes are not UTF-8 have lone surrogates.
        "command": shlex.join(command).encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "version": mpi_ustat.__version__,
        "git_commit": _git_commit(Path(mpi_ustat.__file__).parent.parent),
        "python_version": platform.python_version(),
        **{f"{name}_version": installed_version(name) for name in LIBRARIES},
        "mpi_library": short_library_name(mpi_library),
        **numbers,
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "wall_seconds": float(wall_seconds),
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def without_folders(text: str) -> str:
    """Cut the absolute paths in an option's text to their base names.

    >>> without_folders("x=/home/ann/scores.h5:a,/tmp/b.csv")
    'x=scores.h5:a,b.csv'
    >>> without_folders("results/auc.h5")
    'results/auc.h5'
    """
    return _FOLDERS.sub(r"\1", text)


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def hdf5_version() -> str:
    """Return the version of the HDF5 library that h5py has."""
    import h5py

    return str(h5py.version.hdf5_version)


def short_library_name(text: str) -> str:
    """Keep 'Open MPI v4.1.4' of a text that goes on with the build's host, paths and options."""
    lines = text.strip("\0 \n").splitlines()
    return " ".join(lines[0].split(",")[0].split()) if lines else ""


def _git_commit(folder: Path) -> str | None:
    """Return the commit checked out in `folder`, or None if that is not a git checkout.

    The files are read without git, which compute nodes often lack; none of a folder above, which may be another
    project's checkout.
    """
    with suppress(OSError, ValueError):
        git = folder / ".git"
        if git.is_file():  # a linked worktree or a submodule
            git = folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return _valid_commit(head)
        reference = head.removeprefix("ref:").strip()
        common = git / "commondir"
        if common.is_file():
            git = git / common.read_text(encoding="utf-8").strip()
        loose = git / reference
        if loose.is_file():
            return _valid_commit(loose.read_text(encoding="utf-8").strip())
        for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
            commit, _, name = line.partition(" ")
            if name == reference:
                return _valid_commit(commit)
    return None


def _valid_commit(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None
