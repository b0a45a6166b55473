"""Rounds of an estimation as arrays that a file can hold, and back, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.estimates import Round
from mpi_ustat.kernels.kernel import PairSum


def rounds_to_arrays(rounds: Sequence[Round]) -> dict[str, NDArray[Any]]:
    """Return one or more rounds of one estimation as arrays.

    Sums and numbers of pairs, integers of any size among them, are written as JSON, whose integers are exact and whose
    floats Python writes with as many digits as tell them apart.
    """
    exact = [
        {"sums": each.sums, "weights": each.weights, "sizes": each.sizes, "multiplicities": each.multiplicities}
        for each in rounds
    ]
    known = [each.components for each in rounds if each.components is not None]
    none = np.zeros_like(known[0]) if known else np.zeros(0)
    return {
        "exact": np.frombuffer(json.dumps(exact, default=lambda number: number.item()).encode(), dtype=np.uint8),
        "values": np.array([each.values for each in rounds]),
        "value": np.array([each.value for each in rounds]),
        "has_components": np.array([each.components is not None for each in rounds]),
        "components": np.array([none if each.components is None else each.components for each in rounds]),
        "moved": np.array([(each.rows_moved, each.bytes_moved) for each in rounds], dtype=np.int64),
    }


def arrays_to_rounds(arrays: Mapping[str, NDArray[Any]]) -> list[Round]:
    """Return the rounds that `rounds_to_arrays` has made arrays of."""
    exact = json.loads(arrays["exact"].tobytes())
    return [
        Round(
            sums=tuple(tuple(PairSum(*part) for part in of_worker) for of_worker in each["sums"]),
            values=arrays["values"][t],
            weights=tuple(each["weights"]),
            value=arrays["value"][t],
            components=arrays["components"][t] if arrays["has_components"][t] else None,
            sizes=tuple(map(tuple, each["sizes"])),
            rows_moved=int(arrays["moved"][t, 0]),
            bytes_moved=int(arrays["moved"][t, 1]),
            multiplicities=tuple(map(tuple, each["multiplicities"])),
        )
        for t, each in enumerate(exact)
    ]
