"""Labels of points as scikit-learn's users pass them, on all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.user.guards import has_masked


def refuse_masked(**given: Any) -> None:
    """Refuse masked values, under whose mask scikit-learn looks."""
    for name, values in given.items():
        if has_masked(values):
            raise UserError(f"{name} has masked values: remove these points, or fill them in")


def n_rows_of(values: Any) -> int:
    """Return how many rows there are."""
    return int(values.shape[0]) if getattr(values, "shape", ()) else len(values)


def union(found: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the distinct labels of all ranks; numbers and texts are not mixed, for NumPy would make texts of both."""
    kinds = {"text" if each.dtype.kind in "US" else "object" if each.dtype.kind == "O" else "number" for each in found}
    if len(kinds) > 1:
        raise UserError(f"the ranks' labels are of different kinds ({', '.join(sorted(kinds))}): pass the same on all")
    return np.unique(np.concatenate(found))


def show(labels: NDArray[Any]) -> str:
    """Return labels as messages write them."""
    shown = ", ".join(repr(label) for label in labels[:5].tolist())
    return f"{shown}, …" if len(labels) > 5 else shown
