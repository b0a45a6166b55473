"""What cost models share: networks, messages of collective calls, and constants fitted by least squares; pure.

The seconds of a phase of a job are the sum of constants of the processor, each times how often the busiest rank does
what it is the cost of; those of messages are α for each and β for each byte that a rank sends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpi_ustat.errors import UserError

Counts = dict[str, float]
"""How often what each constant is the cost of is done."""

Traffic = tuple[float, float]
"""Messages and bytes that a rank sends."""

WIRE = ("latency", "transfer")
"""The phases of messages: α times their number, β times their bytes."""

_SHORT_MESSAGE = 256  # bytes for each rank up to which an Alltoall takes log₂ P messages
_LONG_GATHER = 1 << 19  # bytes from which MPICH gathers in a ring of P - 1 messages instead of log₂ P


@dataclass(frozen=True)
class Network:
    """How long messages take: `latency` seconds each, α, and `seconds_per_byte` sent by a rank, β."""

    latency: float = 0.0
    seconds_per_byte: float = 0.0


CLUSTER = Network(latency=2e-6, seconds_per_byte=8 / 100e9)
"""Assumed: 2 µs, 100 Gbit/s."""


def gathered(n_ranks: int, n_bytes: float) -> Traffic:
    """Return the messages and bytes of a rank where so many bytes of all ranks together come to every rank."""
    others = n_ranks - 1
    return (others if n_bytes > _LONG_GATHER else others.bit_length()), n_bytes * others / n_ranks


def told(n_ranks: int, n_bytes: float) -> Traffic:
    """Return the same where every rank says so many bytes to each."""
    others = n_ranks - 1
    if n_bytes > _SHORT_MESSAGE:
        return others, n_bytes * others
    return others.bit_length(), n_bytes * others.bit_length() * n_ranks / 2


def added(n_ranks: int, n_bytes: float) -> Traffic:
    """Return the same where so many bytes are reduced, to all: half of the messages scatter parts, half gather them."""
    return 2 * (n_ranks - 1).bit_length(), 2 * n_bytes * (n_ranks - 1) / n_ranks


def together(traffic: Iterable[Traffic]) -> Traffic:
    """Return the sums of messages and bytes."""
    messages, sent = np.sum([*traffic, (0.0, 0.0)], axis=0).tolist()
    return messages, sent


def predicted(
    constants: Mapping[str, float],
    operations: Mapping[str, Counts],
    traffic: Traffic,
    network: Network,
    ranks_per_core: float = 1.0,
) -> dict[str, float]:
    """Return the seconds of each phase, and those of `WIRE`; ranks that share a core compute so many times as long."""
    seconds = {
        phase: ranks_per_core * sum(constants[name] * count for name, count in counts.items())
        for phase, counts in operations.items()
    }
    messages, sent = traffic
    return seconds | {"latency": messages * network.latency, "transfer": sent * network.seconds_per_byte}


@dataclass(frozen=True)
class Equation:
    """The seconds that so many operations took, and those of the whole job, of which errors are shares."""

    counts: Counts
    seconds: float
    whole: float


@dataclass(frozen=True)
class Fit:
    """Fitted constants.

    Attributes
    ----------
    constants : dict of str to float
    standard_errors : dict of str to float
        NaN for a constant that is at its bound, 0.
    error : float
        Root mean square of what phases took beside what they are fitted to take, as shares of the whole job.
    """

    constants: dict[str, float]
    standard_errors: dict[str, float]
    error: float


def least_squares(names: Sequence[str], equations: Sequence[Equation]) -> Fit:
    """Fit constants, none negative, by least squares.

    Equations are divided by the seconds of the whole job, so that the errors are relative, and phases count as much as
    they matter.

    Raises
    ------
    UserError
        If the equations don't tell all constants apart, or a job took no time.
    """
    from scipy.optimize import nnls

    if not all(each.whole > 0.0 for each in equations):
        raise UserError("a job took no time: give measured ones")
    rows = [[each.counts.get(name, 0.0) / each.whole for name in names] for each in equations]
    matrix = np.array(rows).reshape(-1, len(names))
    right = np.array([each.seconds / each.whole for each in equations])
    scale = np.sqrt((matrix**2).sum(axis=0))
    missing = [name for name, size in zip(names, scale, strict=True) if size == 0.0]
    if missing:
        raise UserError(f"no job tells what costs {', '.join(missing)}: time others, of other sizes")
    scaled = matrix / scale
    if np.linalg.matrix_rank(scaled) < len(names) or len(scaled) <= len(names):
        raise UserError("the jobs don't tell the constants apart: time some of more sizes")
    found, norm = nnls(scaled, right)
    positive = found > 0.0
    variance = norm**2 / (len(right) - int(positive.sum()))
    errors = np.full(len(found), np.nan)
    chosen = scaled[:, positive]
    errors[positive] = np.sqrt(variance * np.diag(np.linalg.inv(chosen.T @ chosen)))
    return Fit(
        dict(zip(names, (found / scale).tolist(), strict=True)),
        dict(zip(names, (errors / scale).tolist(), strict=True)),
        float(norm / math.sqrt(len(right))),
    )
