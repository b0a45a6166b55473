"""Rows of 1 byte to 64 KiB from every rank to every other, or to few: by Alltoallv, by a message a pair, host by host.

    mpiexec -n 4 python scripts/bench_messages.py
    scripts/hosts.sh up 4 1gbit; scripts/hosts.sh run 4x2 python scripts/bench_messages.py; scripts/hosts.sh down 4

"Alltoallv" is the package's exchange. "posted" sends a message for each pair of ranks that has rows to exchange. "by
host" combines what the ranks of a host have for those of another into one message: rows go to one rank of their own
host, to one of the other, and to where they belong. All three bring the same rows, which is checked. Neither of the
other two was ever faster where this was tried, so the package has none of them. Printed: medians of alternating runs.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from _bench import alternate, machine
from mpi4py import MPI
from numpy.typing import NDArray

from mpi_ustat.mpi.collectives import exchange_by_messages, exchange_rows, starts_of

Array = NDArray[Any]


class ByHost:
    """Rows between ranks of several hosts, with one message for each ordered pair of hosts.

    Rows from a rank of host h to one of host g pass through a rank of each: of those on h the one numbered g modulo
    their number, of those on g the one numbered h. Within a host rows go by Alltoallv, and no count is sent between
    hosts: each rank knows what it sends and gets, and tells those of its host.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self._host = comm, comm.Split_type(MPI.COMM_TYPE_SHARED)
        first = self._host.bcast(comm.rank)
        names = comm.allgather(first)
        self._members = [np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)]
        self._own = list(dict.fromkeys(names)).index(first)
        n_here = len(self._members[self._own])
        here = self._host.rank
        self._through = [[g for g in self._others if g % n_here == rank] for rank in range(n_here)]
        self._hosts = self._through[here]

    @property
    def _others(self) -> list[int]:
        return [g for g in range(len(self._members)) if g != self._own]

    @property
    def n_hosts(self) -> int:
        """Hosts that the ranks are on."""
        return len(self._members)

    def exchange(self, rows: Array, send_counts: Array, received: Array, receive_counts: Array) -> None:
        """Do what `exchange_rows` does.  Collective."""
        mine, here, members = self._members[self._own], self._host.rank, self._members
        sends, receives = (np.array(self._host.allgather(each)) for each in (send_counts, receive_counts))
        # To the ranks of this host: what they pass on, host by host, and what is for themselves.
        to = [
            np.concatenate([*(members[g] for g in hosts), [rank]])
            for hosts, rank in zip(self._through, mine, strict=True)
        ]
        packed = _in_segments(rows, send_counts, np.concatenate(to))
        at_hand = self._within(
            packed, [int(send_counts[each].sum()) for each in to], [int(each[to[here]].sum()) for each in sends]
        )
        # At hand lie, for each rank of this host, its rows for each rank of the hosts beyond, and those for this one.
        n_local, width = len(mine), len(to[here])
        segments, places = sends[:, to[here]].ravel(), np.arange(n_local * width).reshape(n_local, width)
        cuts = np.cumsum([len(members[g]) for g in self._hosts])
        by_host = np.split(places[:, :-1], cuts[:-1], axis=1) if self._hosts else []
        outgoing = [_in_segments(at_hand, segments, each.ravel()) for each in by_host]
        kept = _in_segments(at_hand, segments, places[:, -1])
        # What another host sends lies there by its ranks, for each rank of this host.
        arriving = [receives[:, members[g]].T.ravel() for g in self._hosts]
        incoming = [np.empty((int(each.sum()), *rows.shape[1:]), rows.dtype) for each in arriving]
        peers = [int(members[g][self._own % len(members[g])]) for g in self._hosts]
        requests = [self._comm.Irecv(each, peer) for each, peer in zip(incoming, peers, strict=True)]
        requests += [self._comm.Isend(each, peer) for each, peer in zip(outgoing, peers, strict=True)]
        MPI.Request.Waitall(requests)
        # To the ranks of this host: what came for each, host by host and rank by rank there.
        sizes = np.concatenate([*arriving, np.zeros(0, dtype=np.int64)])
        offsets = starts_of(np.array([len(each) for each in arriving], dtype=np.int64))
        order = [
            offset + n_local * np.arange(len(members[g])) + rank
            for rank in range(n_local)
            for g, offset in zip(self._hosts, offsets, strict=True)
        ]
        whole = np.concatenate([*incoming, rows[:0]])
        last = _in_segments(whole, sizes, np.concatenate([*order, np.zeros(0, dtype=np.int64)]).astype(np.int64))
        passed = [[rank for g in hosts for rank in members[g]] for hosts in self._through]
        out = [int(each[passed[here]].sum()) for each in receives]
        final = self._within(last, out, [int(receive_counts[each].sum()) for each in passed])
        sources = np.array([*(rank for each in passed for rank in each), *mine], dtype=np.int64)
        everything = np.concatenate([final, kept])
        received[...] = _in_segments(everything, receive_counts[sources], np.argsort(sources))

    def _within(self, rows: Array, send_counts: list[int], receive_counts: list[int]) -> Array:
        received = np.empty((sum(receive_counts), *rows.shape[1:]), rows.dtype)
        exchange_rows(self._host, rows, np.array(send_counts), received, np.array(receive_counts), 2**31 - 1)
        return received


def _in_segments(rows: Array, counts: Array, order: Array) -> Array:
    """Return the segments of rows, which have these lengths, in another order."""
    chosen = counts[order]
    index = np.repeat(starts_of(counts)[order] - starts_of(chosen), chosen) + np.arange(int(chosen.sum()))
    return rows.take(index, axis=0)


def measured(
    comm: MPI.Comm, by_host: ByHost, rows_bytes: tuple[int, int], partners: int, options: Any
) -> dict[str, float]:
    """Return the seconds of an exchange by each way, of so many rows of so many bytes for each partner."""
    steps = np.arange(1, 1 + (partners or comm.size - 1))
    n_rows, size = rows_bytes
    send_counts, receive_counts = (
        np.bincount((comm.rank + way * steps) % comm.size, minlength=comm.size) * n_rows for way in (1, -1)
    )
    rows = np.random.default_rng(comm.rank).integers(0, 256, (int(send_counts.sum()), size), dtype=np.uint8)
    ways = {
        "Alltoallv": lambda into: exchange_rows(comm, rows, send_counts, into, receive_counts, len(rows)),
        "posted": lambda into: exchange_by_messages(comm, rows, send_counts, into, receive_counts),
        "by host": lambda into: by_host.exchange(rows, send_counts, into, receive_counts),
    }
    received = {name: np.empty_like(rows) for name in ways}

    def repeated(name: str) -> None:
        for _ in range(options.repeats):
            ways[name](received[name])

    seconds = alternate(comm, {name: partial(repeated, name) for name in ways}, options.runs)
    assert all(each.tobytes() == received["Alltoallv"].tobytes() for each in received.values())
    return {name: each / options.repeats for name, each in seconds.items()}


def main() -> None:
    """Print one line for each pattern and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1, 8, 64, 512, 4096, 65536], help="of a row")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32], help="for each partner")
    parser.add_argument("--partners", type=int, nargs="+", default=[0, 2], help="of each rank; 0: all")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5, help="exchanges in a run")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    by_host = ByHost(comm)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size} on {by_host.n_hosts} hosts; microseconds an exchange")
    for partners, n_rows, size in product(options.partners, options.rows, options.bytes):
        seconds = measured(comm, by_host, (n_rows, size), partners, options)
        if comm.rank == 0:
            told = ", ".join(f"{name} {1e6 * each:8.1f}" for name, each in seconds.items())
            to = f"to {partners}" if partners else "to all"
            print(f"{to:6s} {n_rows:3d} rows of {size:5d} bytes: {told}", flush=True)


if __name__ == "__main__":
    main()
