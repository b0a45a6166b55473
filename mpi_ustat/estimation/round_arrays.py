"""Rounds of an estimation as arrays that a file can hold, and back, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.estimates import Round
from mpi_ustat.estimation.records import NAMES, WHOLE, Record
from mpi_ustat.estimation.round_sums import Exact, PartSum, RoundSums
from mpi_ustat.numerics.wholes import widened
from mpi_ustat.schemes.variance import Spread

FORM = 2
"""Of these arrays: another is not read."""

_OF_SPREAD = tuple(each.name for each in fields(Spread))


def rounds_to_arrays(rounds: Sequence[Round]) -> dict[str, NDArray[Any]]:
    """Return rounds of one estimation as arrays, what is the same in all of them once; none may be done yet.

    Sums, and multiplicities, of which few estimations have any, are written as JSON, whose integers are exact.
    """
    known = [each.components for each in rounds if each.components is not None]
    none = np.zeros_like(known[0]) if known else np.zeros(0)
    records = [each.record for each in rounds if each.record is not None]
    spreads = [each.spread for each in rounds if each.spread is not None]
    of_records = {name: _stacked(_of_one_width(name, records)) for name in NAMES if records}
    of_spreads = {name: np.array([getattr(each, name) for each in spreads]) for name in _OF_SPREAD if spreads}
    return {
        **{f"record/{name}": values for name, values in of_records.items()},
        **{f"spread/{name}": values for name, values in of_spreads.items()},
        "scale": np.array([each.scale for each in records[:1]]),
        "sums": _as_json([_plain_sums(each.sums) for each in rounds]),
        "sizes": _stacked([np.stack(each.sizes) for each in rounds]),
        "value": np.array([each.value for each in rounds]),
        "has_components": np.array([each.components is not None for each in rounds]),
        "components": np.array([none if each.components is None else each.components for each in rounds]),
        "moved": np.array([(each.rows_moved, each.bytes_moved) for each in rounds], dtype=np.int64),
        "multiplicities": _as_json([each.multiplicities for each in rounds]),
    }


def arrays_to_rounds(arrays: Mapping[str, NDArray[Any]], *, with_records: bool = True) -> list[Round]:
    """Return the rounds that `rounds_to_arrays` has made arrays of, with or without records, if there are any."""
    sums, multiplicities = (json.loads(arrays[name].tobytes()) for name in ("sums", "multiplicities"))
    n_rounds, sizes = len(sums), arrays["sizes"]
    of_sizes = [tuple(each) for each in sizes]
    scales = arrays["scale"].tolist() if with_records else []
    of_records = [_of_rounds(arrays[f"record/{name}"], n_rounds) for name in NAMES if scales]
    records = [Record(dict(zip(NAMES, each, strict=True)), scales[0]) for each in zip(*of_records, strict=True)]
    of_spreads = [arrays[f"spread/{name}"] for name in _OF_SPREAD if "spread/counts" in arrays]
    spreads = [Spread(*each) for each in zip(*of_spreads, strict=True)]
    return [
        Round(
            sums=_sums(sums[t]),
            record=records[t] if records else None,
            value=arrays["value"][t],
            components=arrays["components"][t] if arrays["has_components"][t] else None,
            sizes=of_sizes[min(t, len(of_sizes) - 1)],
            rows_moved=int(arrays["moved"][t, 0]),
            bytes_moved=int(arrays["moved"][t, 1]),
            multiplicities=tuple(map(tuple, multiplicities[t])),
            spread=spreads[t] if spreads else None,
        )
        for t in range(n_rounds)
    ]


def _plain_sums(sums: RoundSums) -> tuple[list[list[Any]], int, int]:
    return [[*_plain(each.total), each.n_pairs] for each in sums.parts], sums.evaluations, sums.n_empty


def _sums(plain: Sequence[Any]) -> RoundSums:
    parts, evaluations, n_empty = plain
    return RoundSums(tuple(PartSum(_exact(total), n_pairs) for *total, n_pairs in parts), evaluations, n_empty)


def _plain(total: Exact) -> Sequence[int | float]:
    """Return a sum as numbers that JSON has: one, or the two of a quotient."""
    return total.as_integer_ratio() if isinstance(total, Fraction) else (total,)


def _exact(plain: Sequence[Any]) -> Exact:
    return Fraction(*plain) if len(plain) == 2 else plain[0]


def _as_json(values: Sequence[Any]) -> NDArray[Any]:
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def _of_one_width(name: str, records: Sequence[Record]) -> list[NDArray[Any]]:
    """Return arrays of records, those of words with as many of them."""
    arrays = [each.arrays[name] for each in records]
    n_words = {len(each) for each in arrays}
    if name not in WHOLE or len(n_words) == 1:
        return arrays
    return [widened(each.whole(name), max(n_words)) for each in records]


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays as one with a row for each, or for all if they are the same."""
    if arrays and all(each is arrays[0] or np.array_equal(each, arrays[0]) for each in arrays):
        return arrays[0][None]
    return np.array(arrays)


def _of_rounds(stacked: NDArray[Any], n_rounds: int) -> Iterator[NDArray[Any]]:
    rows = list(stacked)
    return (rows[min(t, len(rows) - 1)] for t in range(n_rounds))
