"""Random streams keyed by names and logical ids, never by MPI rank.

A stream is identified by (seed, purpose, replicate, round, worker). The first two choose the 128-bit key of a Philox
generator, the last three are words of its 256-bit counter, so that streams never overlap and any of them can be opened
at once, in any order, on any rank. Draws are built on `BitGenerator.random_raw`, whose output NumPy guarantees never to
change, instead of `Generator`, whose methods may change between versions.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Flags, Floats, Ints

_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)
_ALL_BITS = np.uint64(2**64 - 1)
_MOST_HALVES = 2**32  # indices that fit into a word beside 32 random bits

Words = NDArray[np.uint64]


def fresh_seed() -> int:
    """Return a seed drawn from the operating system (63 bits, so that it fits every file format)."""
    return secrets.randbits(63)


def _plain(starts: range, phase: str) -> range:
    return starts


class Streams:
    """The random streams of one seed.

    Parameters
    ----------
    seed : int
        Non-negative; the same seed gives the same streams on every machine and every number of ranks.

    Notes
    -----
    One Philox generator is kept and re-keyed by assigning its state, which costs a tenth of making a new one. An
    instance is therefore not to be shared between threads.
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError("a seed is not negative")
        self.seed = seed
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)
        # Tuples are read faster than arrays.
        self._state: Any = {**self._bits.state, "buffer": (0, 0, 0, 0)}
        self._keys: dict[str, tuple[int, ...]] = {}
        self._counting = _Counting()
        self._memory: dict[str, Words] = {}

    def open(self, purpose: str, *, replicate: int = 0, round: int = 0, worker: int = 0) -> Stream:
        """Return the stream (seed, purpose, replicate, round, worker), positioned at its start.

        Opening a stream closes the one opened before from the same `Streams`.
        """
        self._position(purpose, replicate, round, worker)
        return Stream(self._bits, self._counting)

    def generator(self, purpose: str, *, replicate: int = 0, round: int = 0, worker: int = 0) -> np.random.Generator:
        """Return NumPy's generator on the stream, for distributions that `Stream` doesn't have.

        Its draws may change between NumPy versions. It closes the stream opened before, like `open`.
        """
        self._position(purpose, replicate, round, worker)
        return self._generator

    def permutations(self, purpose: str, n: int, replicates: range, rounds: int) -> Ints:
        """Return the permutations of 0 … n-1 of several replicates and rounds, shape (replicates, rounds, n).

        Each is the one that its own stream gives, ``open(purpose, replicate=r, round=t).permutation(n)``; made all
        together, they cost fewer calls. The array is overwritten by the next call.
        """
        bits, shape = _index_bits(n), (len(replicates), rounds, n)
        words, orders = (self._scratch(name, shape) for name in ("words", "orders"))
        for i, r in enumerate(replicates):
            for t in range(rounds):
                self._position(purpose, r, t, 0)
                words[i, t] = _random_bits(self._bits.random_raw(_raw_words(n)), n)
        np.left_shift(words, bits, out=words)
        np.bitwise_or(words, self._counting.upto(n), out=words)
        words.sort(axis=2)
        np.right_shift(words, bits, out=orders)
        tied = orders[:, :, 1:] == orders[:, :, :-1]
        if tied.any():
            for i, t in np.argwhere(tied.any(axis=2)).tolist():
                stream = self.open(purpose, replicate=replicates[i], round=t)
                stream.raw(_raw_words(n))  # the draws that break ties come after these
                stream.order(words[i, t], orders[i, t].view(np.int64))
        np.bitwise_and(words, (np.uint64(1) << bits) - np.uint64(1), out=orders)
        return orders.view(np.int64)

    def _scratch(self, name: str, shape: tuple[int, ...]) -> Words:
        """Return memory that is used again by the next call of that name."""
        size = math.prod(shape)
        if len(self._memory.get(name, ())) < size:
            self._memory[name] = np.empty(size, dtype=np.uint64)
        return self._memory[name][:size].reshape(shape)

    def _position(self, purpose: str, replicate: int, round: int, worker: int) -> None:
        key = self._keys.get(purpose)
        if key is None:
            words = np.frombuffer(purpose.encode().ljust(-(-len(purpose.encode()) // 4) * 4, b"\0"), dtype="<u4")
            key = tuple(np.random.SeedSequence([self.seed, *words.tolist()]).generate_state(2, np.uint64).tolist())
            self._keys[purpose] = key
        self._state["state"] = {"counter": (0, worker, round, replicate), "key": key}
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._bits.state = self._state


def _halves(words: Words) -> Words:
    """Return the low and high 32 bits of each word, one after the other, as 64-bit numbers."""
    return words.astype("<u8", copy=False).view("<u4").astype(np.uint64)


def _index_bits(n: int) -> np.uint64:
    return np.uint64(max(n - 1, 0).bit_length())


def _raw_words(n: int) -> int:
    """Return how many words a permutation of n indices takes.

    32 random bits an index cost half the generator's time; the ties they leave are few and cheap.
    """
    return n if n > _MOST_HALVES else (n + 1) // 2


def _random_bits(raw: Words, n: int) -> NDArray[np.unsignedinteger]:
    """Return n random numbers of 64 or, made from the halves of the words, 32 bits."""
    return raw if n > _MOST_HALVES else raw.astype("<u8", copy=False).view("<u4")[:n]


def _shuffle_ties(stream: Stream, words: Words, keys: Words, tied: Flags) -> None:
    """Put sorted words whose keys are equal in random order; tied[i] tells whether key i equals key i+1."""
    involved = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    keys = keys[involved]
    while True:
        extra = stream.raw(len(involved))
        ranking = np.lexsort((extra, keys))
        again = (np.diff(keys[ranking]) == 0) & (np.diff(extra[ranking]) == 0)
        if not again.any():
            break
    words[involved] = words[involved][ranking]


class _Side:
    """One side of many pairs: which of its words are rejected, and what takes their place (see `Stream._reduce`)."""

    def __init__(self, bound: int) -> None:
        self._bound = np.uint64(bound)
        self._threshold = np.uint64(2**32 % bound) << _SHIFT32
        self._found: list[Ints] = []

    def find_rejected(self, words32: Words, first: int) -> None:
        """Note the rejected ones of the words from number `first` on."""
        if self._threshold:
            self._found.append(np.flatnonzero((words32 * self._bound) << _SHIFT32 < self._threshold) + first)

    def draw_again(self, stream: Stream) -> None:
        """Draw what takes their place."""
        self._at = np.concatenate(self._found) if self._found else np.empty(0, dtype=np.int64)
        self._instead = np.zeros(len(self._at), dtype=np.uint64)
        rejected = np.arange(len(self._at))
        while len(rejected):
            self._instead[rejected] = (stream.raw(len(rejected)) & _LOW32) * self._bound
            rejected = rejected[self._instead[rejected] << _SHIFT32 < self._threshold]

    def places(self, words32: Words, first: int) -> Ints:
        """Return the indices that the words from number `first` on stand for."""
        products = words32 * self._bound
        begin, after = np.searchsorted(self._at, [first, first + len(products)])
        products[self._at[begin:after] - first] = self._instead[begin:after]
        return (products >> _SHIFT32).view(np.int64)


class _Counting:
    """0, 1, 2, … as an array that is kept, since making it anew costs as much as using it."""

    def __init__(self) -> None:
        self._numbers = np.empty(0, dtype=np.uint64)

    def upto(self, n: int) -> Words:
        if len(self._numbers) < n:
            self._numbers = np.arange(n, dtype=np.uint64)
        return self._numbers[:n]


class Stream:
    """Draws from one keyed stream."""

    def __init__(self, bits: np.random.Philox, counting: _Counting) -> None:
        self._bits = bits
        self._counting = counting

    def raw(self, size: int) -> Words:
        """Return `size` independent uniform 64-bit words."""
        return self._bits.random_raw(size)

    def uniform(self, size: int) -> Floats:
        """Return `size` uniform doubles in [0, 1), multiples of 2**-53."""
        words = self.raw(size)
        words >>= np.uint64(11)
        return words.astype(np.float64) * 2.0**-53

    def normal(self, size: int) -> Floats:
        """Return `size` standard normal doubles (Box-Muller on uniforms; tails reach 8.5)."""
        half = (size + 1) // 2
        u = self.uniform(2 * half)
        radius = np.sqrt(-2.0 * np.log1p(-u[:half]))
        angle = 2.0 * np.pi * u[half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def integers(self, bound: int, size: int) -> Ints:
        """Return `size` integers uniform on 0 … bound-1, without bias (multiply-shift with rejection, Lemire 2019)."""
        if not 0 < bound < 2**63:
            raise ValueError("bound must be between 1 and 2**63 - 1")
        if bound > 2**32:
            return self._wide_integers(bound, size)
        words = self.raw((size + 1) // 2)
        return self._reduce(_halves(words)[:size], bound)

    def pairs(self, n: int, m: int, size: int) -> tuple[Ints, Ints]:
        """Return `size` index pairs, independent and uniform on {0…n-1} × {0…m-1}, drawn with replacement."""
        rows, columns = (np.empty(size, dtype=np.int64) for _ in range(2))
        self.write_pairs(n, m, rows, columns)
        return rows, columns

    def pairs_in_parts(
        self, n: int, m: int, size: int, part: int, steps: Callable[[range, str], Iterable[int]] = _plain
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield what `pairs` returns, in parts of so many pairs: memory is that of a part.

        What is drawn again comes from the stream after all pairs: a first pass finds which, a second one yields.
        What their steps pass through may announce them, such as `mpi.runtime.announced`.
        """
        if size <= part or max(n, m) > 2**32:
            for _ in steps(range(1), "evaluate"):
                yield self.pairs(n, m, size)
            return
        starts = range(0, size, part)
        begin = self._bits.state
        sides = (_Side(n), _Side(m))
        for start in steps(starts, "draw"):
            words = self.raw(min(part, size - start))
            for side, half in zip(sides, (words & _LOW32, words >> _SHIFT32), strict=True):
                side.find_rejected(half, start)
        for side in sides:
            side.draw_again(self)
        end, here = self._bits.state, begin
        for start in steps(starts, "evaluate"):
            self._bits.state = here  # also where another stream was opened meanwhile
            words = self.raw(min(part, size - start))
            here = self._bits.state
            yield sides[0].places(words & _LOW32, start), sides[1].places(words >> _SHIFT32, start)
        self._bits.state = end

    def write_pairs(self, n: int, m: int, rows: Ints, columns: Ints, first: tuple[int, int] = (0, 0)) -> None:
        """Write the indices of `pairs` to two arrays of one length, counted from `first` instead of 0."""
        if max(n, m) > 2**32:
            np.add(self.integers(n, len(rows)), first[0], out=rows)
            np.add(self.integers(m, len(rows)), first[1], out=columns)
            return
        words = self.raw(len(rows))  # one 64-bit word serves both indices of a pair
        self._reduce(np.bitwise_and(words, _LOW32, out=rows.view(np.uint64)), n, first[0])
        self._reduce(np.right_shift(words, _SHIFT32, out=columns.view(np.uint64)), m, first[1])

    def permutation(self, n: int, out: Ints | None = None) -> Ints:
        """Return a uniformly random permutation of 0 … n-1, in `out` (int64, length n) if given.

        Each index rides in the low bits of its own random word and the words are sorted: sorting moves 8 bytes an
        item and no index array. Words that agree in all their random bits are put in random order by further words,
        so that no index has an advantage.
        """
        out = np.empty(n, dtype=np.int64) if out is None else out
        words = _random_bits(self.raw(_raw_words(n)), n).astype(np.uint64)
        np.left_shift(words, _index_bits(n), out=words)
        np.bitwise_or(words, self._counting.upto(n), out=words)
        words.sort()
        return self.order(words, out)

    def order(self, words: Words, out: Ints) -> Ints:
        """Write the indices of sorted tagged words to `out`, ties between the random bits broken by further draws."""
        bits, order = _index_bits(len(words)), out.view(np.uint64)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        gaps = np.subtract(words[1:], words[:-1], out=order[1:])
        if len(gaps) and gaps.min() <= mask:  # only then can two agree in their random bits
            np.right_shift(words, bits, out=order)
            tied = order[1:] == order[:-1]
            if tied.any():
                _shuffle_ties(self, words, order, tied)
        np.bitwise_and(words, mask, out=order)
        return out

    def _reduce(self, words32: Words, bound: int, first: int = 0) -> Ints:
        """Map uniform 32-bit words, overwriting them, to first … first+bound-1, those that favour some drawn again."""
        products = np.multiply(words32, np.uint64(bound), out=words32)
        threshold = np.uint64(2**32 % bound) << _SHIFT32
        if threshold:
            low = products << _SHIFT32
            if low.min(initial=_ALL_BITS) < threshold:  # one call in thousands
                rejected = np.flatnonzero(low < threshold)
                while len(rejected):
                    products[rejected] = (self.raw(len(rejected)) & _LOW32) * np.uint64(bound)
                    rejected = rejected[products[rejected] << _SHIFT32 < threshold]
        products >>= _SHIFT32
        if first:
            products += np.uint64(first)
        return products.view(np.int64)

    def _wide_integers(self, bound: int, size: int) -> Ints:
        limit = np.uint64(2**64 - 2**64 % bound - 1)  # the last word below the largest multiple of bound
        words = self.raw(size)
        rejected = np.flatnonzero(words > limit)
        while len(rejected):
            words[rejected] = self.raw(len(rejected))
            rejected = rejected[words[rejected] > limit]
        return (words % np.uint64(bound)).view(np.int64)
