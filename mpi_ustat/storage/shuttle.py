"""The Shuttle anomaly data (ODDS), which come with the package river: 49097 rows, of which 3511 are outliers."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from mpi_ustat.errors import UserError
from mpi_ustat.storage import delimited
from mpi_ustat.wording import count_of

SHUTTLE = "shuttle"
"""What the data are called where a file is named."""

SHUTTLE_LABEL = "anomaly"
_NAMES = (*(f"f{j}" for j in range(1, 10)), SHUTTLE_LABEL)


def shuttle() -> delimited.DelimitedTable:
    """Describe the data in the installed package, which need not be imported for it.

    Raises
    ------
    UserError
        If it is not installed, or its file is another one than expected.
    """
    spec = find_spec("river")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    paths = [os.path.join(folder, "datasets", "shuttle.csv.gz") for folder in folders]
    path = next(filter(os.path.isfile, paths), None)
    if path is None:
        raise UserError("the Shuttle data come with the package river: pip install 'mpi_ustat[data]'")
    table = delimited.scan(path)  # without a stamp: hosts may have the package installed at different times
    if len(table.columns) != len(_NAMES):
        raise UserError(
            f"'{table.name}' of the installed river has {count_of(len(table.columns), 'column')}, not {len(_NAMES)}: "
            "pip install 'river>=0.26'"
        )
    return replace(
        table, columns=tuple(replace(column, name=name) for column, name in zip(table.columns, _NAMES, strict=True))
    )


def river_version() -> str:
    """Return the package and its version, as results name it."""
    try:
        return f"river {version('river')}"
    except PackageNotFoundError:
        return "river"
