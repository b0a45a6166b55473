"""The communicators of one rank of many that aren't there, for timing what that rank does itself.

What the others would send has the sizes that it would have, and is made up; how long that takes is told apart.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy.special import ndtr

from mpi_ustat.mpi.runtime import listening
from mpi_ustat.schemes.partition import block_bounds

DONE = " done"
"""How the name of an event ends that is the end of a call."""


class StandIn:
    """The communicator of rank `rank` of `size`, to which the others say what it says itself.

    Objects are pickled once and unpickled for each rank, as mpi4py does.

    Attributes
    ----------
    seconds : float
        CPU seconds that it took to make up what the others send.
    listener : callable
        Hears the names of the calls that objects, or numbers by rank, come with, and again with `DONE` at their ends.
    """

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank, self.seconds = size, rank, 0.0
        self.listener: Callable[[str], None] = lambda event: None

    def allgather(self, obj: object) -> list[object]:
        """Return what this rank says, for all of them."""
        self.listener("allgather")
        pickled = MPI.pickle.dumps(obj)
        found = [MPI.pickle.loads(pickled) for _ in range(self.size)]
        self.listener(f"allgather{DONE}")
        return found

    def barrier(self) -> None:
        """Wait for nobody."""

    def bcast(self, obj: object, root: int = 0) -> object:
        """Return `obj`."""
        return obj

    def Allreduce(self, _: object, values: np.ndarray, op: object) -> None:
        """Leave the values as they are."""

    def Allgather(self, own: np.ndarray, received: np.ndarray) -> None:
        """Receive this rank's number from all."""
        received[:] = own

    def Allgatherv(self, own: Any, received: list) -> None:
        """Receive this rank's numbers in the place of others'."""
        self._repeat(own[0] if isinstance(own, list) else own, received[0])

    def Alltoallv(self, sent: list, received: list) -> None:
        """Receive rows of this rank in the place of others'."""
        self._repeat(sent[0], received[0])

    def Isend(self, sent: list, rank: int, tag: int) -> MPI.Request:
        """Send nothing."""
        return MPI.REQUEST_NULL

    def Irecv(self, received: list, rank: int, tag: int) -> MPI.Request:
        """Receive zeros."""
        with self.making_up():
            received[0][...] = 0.0
        return MPI.REQUEST_NULL

    @contextmanager
    def making_up(self) -> Iterator[None]:
        """Count the CPU seconds of the context as those of the other ranks."""
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began

    def own_seconds(self) -> float:
        """Return the CPU seconds of this process but for those of the others."""
        return time.process_time() - self.seconds

    def _repeat(self, given: np.ndarray, wanted: np.ndarray) -> None:
        with self.making_up():
            wanted[...] = np.resize(given, wanted.shape)


class DealingStandIn(StandIn):
    """In a round by matrix: the others send what the blocks of this rank's workers lack.

    Attributes
    ----------
    blocks : list of ndarray of int64
        Rows of each worker hosted here, of each sample.
    """

    def __init__(self, size: int, rank: int, blocks: list[np.ndarray]) -> None:
        super().__init__(size, rank)
        self.blocks = blocks
        self._next = itertools.cycle(blocks)

    def Alltoall(self, told: np.ndarray, heard: np.ndarray) -> None:
        """Say how many rows come from each rank, as evenly as it goes."""
        with self.making_up():
            heard[:] = 0
            others = np.arange(self.size) != self.rank
            for k, rows in enumerate(next(self._next).tolist()):
                missing = rows - int(told[self.rank, k].sum())
                shares = np.diff(block_bounds(missing, (self.size - 1) * told.shape[2]))
                heard[others, k] = shares.reshape(self.size - 1, -1)
            heard[self.rank] = told[self.rank]


class SortingStandIn(StandIn):
    """In a sort: all ranks have as many standard normal scores, of which this one gets those of its range.

    Attributes
    ----------
    n_drawn : int
        Scores that all ranks together contribute to what cuts the ranges.
    bounds : tuple of float
        This rank's range.
    """

    def __init__(self, size: int, rank: int, n_drawn: int) -> None:
        super().__init__(size, rank)
        self.n_drawn, self.bounds = n_drawn, (-np.inf, np.inf)
        self._rng = np.random.default_rng(rank)  # of what differs from time to time

    def Allgather(self, own: np.ndarray, received: np.ndarray) -> None:
        """Say how many scores each contributes."""
        with self.making_up():
            others = np.arange(self.size) != self.rank
            received[others] = np.diff(block_bounds(max(self.n_drawn - int(own[0]), 0), self.size - 1))
            received[self.rank] = own[0]

    def Allgatherv(self, own: list, received: list) -> None:
        """Contribute scores of the law, always the same: what cuts the ranges can be known before they are."""
        with self.making_up():
            whole, (counts, starts), _ = received
            whole[:] = np.random.default_rng(self.rank).standard_normal(len(whole))
            whole[starts[self.rank] : starts[self.rank] + counts[self.rank]] = own[0]

    def Alltoall(self, told: np.ndarray, heard: np.ndarray) -> None:
        """Say how many scores of this rank's range each has."""
        with self.making_up():
            low, high = ndtr(self.bounds)
            heard[:, 1] = told[:, 1]
            heard[:, 0] = self._rng.binomial(heard[:, 1], high - low)
            heard[self.rank] = told[self.rank]

    def Alltoallv(self, sent: list, received: list) -> None:
        """Send scores of the range, in order from each rank: even ones, as the law nearly is within a short range."""
        with self.making_up():
            rows, send_counts, _ = sent
            whole, counts, _ = received
            low, high = np.clip(self.bounds, -5.0, 5.0)
            whole[:] = self._rng.uniform(low, high, len(whole))
            ends = np.cumsum(counts)
            for segment in np.split(whole, ends[:-1]):
                segment.sort()
            first = int(send_counts[: self.rank].sum())
            own = rows[first : first + int(send_counts[self.rank])]
            whole[ends[self.rank] - len(own) : ends[self.rank]] = own
        self.listener(f"Alltoallv{DONE}")


class Watched:
    """A communicator, of which is known how long its calls keep the processor: MPI libraries poll while they wait.

    Attributes
    ----------
    seconds : float
        CPU seconds in calls so far.
    """

    def __init__(self, comm: Any) -> None:
        self._comm, self.seconds = comm, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            began = time.process_time()
            result = found(*args, **options)
            self.seconds += time.process_time() - began
            return result

        return call


@contextmanager
def phases(comm: StandIn, first: str, following: Callable[[str, str], str]) -> Iterator[dict[str, float]]:
    """Give a dictionary of a rank's own CPU seconds by phase, which is filled while the context lasts.

    Parameters
    ----------
    comm : StandIn
    first : str
        The phase that it begins with.
    following : callable
        Gets a phase and what happens, which is a phase that the program enters or an event of `comm`; returns the
        phase from then on. What stands behind a comma in it is not counted apart.
    """
    seconds: dict[str, float] = {}
    phase, began = first, comm.own_seconds()

    def heard(event: str) -> None:
        nonlocal phase, began
        now = comm.own_seconds()
        name, _, _ = phase.partition(",")
        seconds[name] = seconds.get(name, 0.0) + now - began
        phase, began = following(phase, event), now

    comm.listener = heard
    with listening(heard):
        yield seconds
    heard("end")


def own_of(rows: Sequence[int], n_ranks: int, rank: int) -> list[int]:
    """Return how many rows of samples of these sizes a rank has."""
    return [int(np.diff(block_bounds(size, n_ranks))[rank]) for size in rows]
