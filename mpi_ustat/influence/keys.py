"""What clusters, strata and groups are called, numbers or text, as whole numbers that mean the same on all ranks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.mpi.runtime import attempt, succeed
from mpi_ustat.numerics.types import Ints

_EMPTY = ("None", "nan", "<NA>", "NaT")
"""The texts of objects that stand for what is not there."""


@dataclass(frozen=True)
class Keys:
    """Names of this rank's points as whole numbers, and what they are called.

    Attributes
    ----------
    codes : ndarray of int64, shape (n,)
        Of a number the bits of the double, of text a digest.
    texts : mapping, or None
        The text of each code on this rank; None: they are numbers.
    """

    codes: Ints
    texts: Mapping[int, str] | None

    @classmethod
    def of(cls, names: NDArray[Any], what: str) -> Keys:
        """Return the codes of numbers or of text.

        Raises
        ------
        UserError
            If a number is NaN or a text is empty; or if they are neither.
        """
        names = np.asarray(names)
        if names.dtype.kind in "OSU":
            texts, places = np.unique(names.astype(str), return_inverse=True)
            # None and its like have texts too, which others may have that are no empty cells.
            suspects = names[np.isin(places.reshape(-1), np.flatnonzero(np.isin(texts, _EMPTY)))]
            if (len(texts) and not texts[0].strip()) or any(not isinstance(each, str | bytes) for each in suspects):
                raise PlacedError(f"{what} has empty cells: fill them, or leave out their rows")
            digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.tolist()]
            codes = np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)
            _check([{code: text} for code, text in zip(codes.tolist(), texts.tolist(), strict=True)], what)
            return cls(codes[places.reshape(-1)], dict(zip(codes.tolist(), texts.tolist(), strict=True)))
        if names.dtype.kind not in "biuf":
            raise UserError(f"{what} must be numbers or text, not {names.dtype}")
        numbers = names.astype(np.float64)
        if np.isnan(numbers).any():
            raise PlacedError(f"{what} has empty cells: fill them, or leave out their rows")
        if names.dtype.kind in "iu" and not np.array_equal(numbers.astype(names.dtype), names):
            raise UserError(f"{what} has whole numbers above 2^53, of which some would become one: write them as text")
        return cls((numbers + 0.0).view(np.int64), None)


def shared(comm: Any, names: NDArray[Any], what: str) -> Keys:
    """Return the keys of this rank's points; what is wrong on one rank is told on all.  Collective.

    Raises
    ------
    UserError
        As of `Keys.of`; if some ranks have text and others numbers; or if two texts have one digest.
    """
    doing = f"reading {what}"
    keys, kinds = attempt(comm, lambda: Keys.of(names, what), doing, share=_kind)
    if len({kind for kind in kinds if kind}) > 1:
        raise UserError(f"{what} has numbers on some ranks and text on others: give all the same kind")
    if "text" in kinds:
        succeed(comm, functools.partial(_check, _by_rank(comm, keys.texts or {}), what), doing)
    return keys


def texts_on_master(comm: Any, keys: Keys) -> Mapping[int, str]:
    """Return the text of every code, on rank 0; empty for numbers, and on other ranks.  Collective."""
    everyone = comm.gather(keys.texts or {})
    return {code: text for of_rank in everyone or () for code, text in of_rank.items()}


def _by_rank(comm: Any, texts: Mapping[int, str]) -> list[dict[int, str]]:
    """Return the names that all ranks use for the codes of this one.  Collective."""
    if comm.size == 1:
        return [dict(texts)]
    parts: list[dict[int, str]] = [{} for _ in range(comm.size)]
    for code, text in texts.items():
        parts[code % comm.size][code] = text
    received: list[dict[int, str]] = comm.alltoall(parts)
    return received


def _check(parts: Sequence[Mapping[int, str]], what: str) -> None:
    known: dict[int, str] = {}
    for part in parts:
        for code, text in part.items():
            if known.setdefault(code, text) != text:
                raise UserError(
                    f"{text!r} and {known[code]!r} in {what} have one digest of 64 bits: rename one of them"
                )


def _kind(keys: Keys) -> str:
    return "" if not len(keys.codes) else "numbers" if keys.texts is None else "text"
