"""The indices of an array job: ranges, steps and lists, and how many of its tasks run at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpi_ustat.errors import UserError

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_MOST_TASKS = 4_000_000  # of SLURM
_FORMS = "such as 1-20, 1-20%4 (4 at once), 0-100:10 (every tenth) or 1,5,8-10"


@dataclass(frozen=True)
class TaskArray:
    """Indices of tasks.

    Attributes
    ----------
    parts : tuple of range
        All indices, in the order in which they are written.
    at_once : int or None
        The most tasks that run at a time.
    """

    parts: tuple[range, ...]
    at_once: int | None = None

    @classmethod
    def of(cls, text: str) -> TaskArray:
        """Return the array that a text writes as SLURM does: ``1-20``, ``0-100:10%4``, ``1,5,8-10``.

        Raises
        ------
        UserError
            If it writes none, has an index twice, or only one.
        """
        listed, throttled, most = text.partition("%")
        found = [_PART.fullmatch(part.strip()) for part in listed.split(",")]
        if (throttled and not re.fullmatch(r"[1-9][0-9]{0,8}", most)) or not all(found):
            raise UserError(f"the array is {text!r}: give its first and last index, {_FORMS}")
        parts = []
        for first, last, step in (part.groups() for part in found if part is not None):
            if last is not None and int(last) < int(first):
                raise UserError(f"the array goes from {first} to {last}: give the smaller index first")
            if step is not None and int(step) == 0:
                raise UserError(f"the array {text!r} has steps of 0: give at least 1")
            parts.append(range(int(first), int(last or first) + 1, int(step or 1)))
        array = cls(tuple(parts), int(most) if throttled else None)
        if len(parts) == 1 and found[0] is not None and found[0][2] is None:
            raise UserError(f"the array is {text!r}, one task: give its first and last index, {_FORMS}")
        n_tasks = sum(map(len, parts))
        if n_tasks > _MOST_TASKS:
            raise UserError(
                f"the array {text!r} has {n_tasks} tasks: give at most {_MOST_TASKS}, of which each does more"
            )
        if len(set(array.indices)) < n_tasks:
            raise UserError(f"the array {text!r} has an index twice: name each task once")
        return array

    def __str__(self) -> str:
        """Return it as SLURM reads it."""
        limit = "" if self.at_once is None else f"%{self.at_once}"
        return ",".join(map(_text, self.parts)) + limit

    @property
    def indices(self) -> list[int]:
        """All of them, one by one."""
        return [index for part in self.parts for index in part]

    def for_pbs(self) -> str:
        """Return the one range that PBS knows: of several the indices are numbered, from 0."""
        return _text(self.parts[0] if len(self.parts) == 1 else range(len(self.indices)))


def _text(part: range) -> str:
    if len(part) == 1 and part.step == 1:
        return str(part.start)
    return f"{part.start}-{part.stop - 1}" + (f":{part.step}" if part.step > 1 else "")
