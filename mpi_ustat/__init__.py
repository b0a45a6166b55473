"""U-statistics over data spread across MPI processes.

>>> from mpi4py import MPI                                                   # doctest: +SKIP
>>> mpi_ustat.estimate(MPI.COMM_WORLD, x, z, "auc", n_rounds=4).value        # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi_ustat.errors import UserError
    from mpi_ustat.estimation import Estimate, estimate
    from mpi_ustat.parallel.runtime import SerialComm

__version__ = "0.1.0"

_HOME = {
    "Estimate": "mpi_ustat.estimation",
    "SerialComm": "mpi_ustat.parallel.runtime",
    "UserError": "mpi_ustat.errors",
    "estimate": "mpi_ustat.estimation",
}

__all__ = ["Estimate", "SerialComm", "UserError", "__version__", "estimate"]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import mpi_ustat` costs nothing and needs no MPI."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
