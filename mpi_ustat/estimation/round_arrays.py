"""Rounds of an estimation as arrays that a file can hold, and back, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.answers import Answers
from mpi_ustat.estimation.estimates import Round
from mpi_ustat.numerics.wholes import widened

_WHOLE = ("totals", "n_pairs", "weights", "evaluations")
_PLAIN = ("reals", "is_real", "values")


def rounds_to_arrays(rounds: Sequence[Round]) -> dict[str, NDArray[Any]]:
    """Return rounds of one estimation as arrays, what is the same in all of them once; none may be done yet.

    Multiplicities, of which few estimations have any, are written as JSON, whose integers are exact.
    """
    known = [each.components for each in rounds if each.components is not None]
    none = np.zeros_like(known[0]) if known else np.zeros(0)
    answers = [each.answers for each in rounds]
    return {
        **{name: _stacked([getattr(each, name) for each in answers]) for name in _PLAIN},
        **{name: _stacked(_of_one_width([getattr(each, name) for each in answers])) for name in _WHOLE},
        "sizes": _stacked([np.stack(each.sizes) for each in rounds]),
        "value": np.array([each.value for each in rounds]),
        "has_components": np.array([each.components is not None for each in rounds]),
        "components": np.array([none if each.components is None else each.components for each in rounds]),
        "moved": np.array([(each.rows_moved, each.bytes_moved) for each in rounds], dtype=np.int64),
        "multiplicities": np.frombuffer(json.dumps([each.multiplicities for each in rounds]).encode(), np.uint8),
    }


def arrays_to_rounds(arrays: Mapping[str, NDArray[Any]]) -> list[Round]:
    """Return the rounds that `rounds_to_arrays` has made arrays of."""
    multiplicities, n_rounds = json.loads(arrays["multiplicities"].tobytes()), len(arrays["value"])
    of_answers = [_of_rounds(arrays[name], n_rounds) for name in (*_WHOLE, *_PLAIN)]
    answers = [Answers(**dict(zip((*_WHOLE, *_PLAIN), each, strict=True))) for each in zip(*of_answers, strict=True)]
    sizes = arrays["sizes"]
    of_sizes = [tuple(each) for each in sizes]
    return [
        Round(
            answers=answers[t],
            value=arrays["value"][t],
            components=arrays["components"][t] if arrays["has_components"][t] else None,
            sizes=of_sizes[min(t, len(of_sizes) - 1)],
            rows_moved=int(arrays["moved"][t, 0]),
            bytes_moved=int(arrays["moved"][t, 1]),
            multiplicities=tuple(map(tuple, multiplicities[t])),
        )
        for t in range(n_rounds)
    ]


def _of_one_width(numbers: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    n_words = max(map(len, numbers), default=1)
    return [widened(each, n_words) for each in numbers]


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays as one with a row for each, or for all if they are the same."""
    if arrays and all(each is arrays[0] or np.array_equal(each, arrays[0]) for each in arrays):
        return arrays[0][None]
    return np.array(arrays)


def _of_rounds(stacked: NDArray[Any], n_rounds: int) -> Iterator[NDArray[Any]]:
    rows = list(stacked)
    return (rows[min(t, len(rows) - 1)] for t in range(n_rounds))
