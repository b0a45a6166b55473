"""The options of a run: validated, immutable, to and from JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.kernels.registry import DEFAULT_KERNEL, find_kernel, options_of
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.learning.losses import DEFAULT_LOSS, LOSSES
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, SCHEMES, scheme_of

EMPTY = ("refuse", "skip", "zero")
MOVES = ("both", "smaller")
SHUFFLES = ("auto", "permutation", "matrix")

MOST_WORKERS = 2**24
"""Every rank keeps account of all workers."""


@dataclass(frozen=True, kw_only=True)
class EstimateConfig:
    """What `mpi_ustat.estimate` is to compute: its options, which its docstring explains, with nothing left open."""

    kernel: str = DEFAULT_KERNEL
    ties: str = ""
    kernel_options: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    scheme: str = DEFAULT_SCHEME
    n_workers: int
    n_rounds: int = 1
    n_pairs: int | None = None
    distinct: bool = False
    aggregate: str = ""
    empty: str = ""
    move: str = "both"
    shuffle: str = "auto"
    seed: int
    reference: bool = False
    stderr: bool = True
    confidence: float = 0.95
    interval: str = "auto"
    per_worker: bool = True
    tile: int = DEFAULT_TILE

    def __post_init__(self) -> None:
        """Refuse what can't be meant, naming the option, its value and what is allowed."""
        for name in ("n_workers", "n_rounds", "n_pairs", "seed", "tile"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        listed = {name: getattr(value, "tolist", lambda v=value: v)() for name, value in self.kernel_options.items()}
        object.__setattr__(self, "kernel_options", listed)
        _choice("scheme", self.scheme, tuple(SCHEMES))
        scheme = scheme_of(self.scheme)
        if not self.empty:
            object.__setattr__(self, "empty", scheme.empty)
        own = self.kernel_options.get("ties")
        if own and self.ties and own != self.ties:
            raise UserError(f"ties is {self.ties!r}, and {own!r} among the kernel's options: give one of them")
        if own:
            object.__setattr__(self, "ties", own)
        declared = options_of(self.kernel).get("ties")
        if not self.ties:
            object.__setattr__(self, "ties", "half" if declared is None else declared.default)
        if not self.aggregate:
            known = find_kernel(self.kernel)
            pools = known is not None and known.pools(self.kernel_options)
            object.__setattr__(self, "aggregate", "pooled" if pools else scheme.aggregate)
        if declared is None:
            _choice("ties", self.ties, ("half", "strict", "shared"))
        else:
            declared.checked(self.ties)
        _choice("interval", self.interval, ("auto", "logit", "wald"))
        if not 0.0 < self.confidence < 1.0:
            raise UserError(f"the confidence is {self.confidence!r}: give a number between 0 and 1, such as 0.95")
        _choice("aggregate", self.aggregate, ("mean", "pooled"))
        _choice("empty", self.empty, EMPTY)
        _choice("move", self.move, MOVES)
        _choice("shuffle", self.shuffle, SHUFFLES)
        _at_least("number of workers", self.n_workers, 1)
        _at_least("number of rounds", self.n_rounds, 1)
        _at_least("seed", self.seed, 0)
        _at_least("tile side", self.tile, 1)
        if self.n_pairs is not None:
            _at_least("number of pairs per worker", self.n_pairs, 1)
        elif self.distinct:
            raise UserError("all local pairs are distinct anyway: give their number too, or leave distinct out")
        if self.n_workers > MOST_WORKERS:
            raise UserError(f"the number of workers is {self.n_workers}: give at most {MOST_WORKERS}")
        if scheme.as_they_lie and self.n_rounds > 1:
            raise UserError(f"{self.scheme} has one partition only: leave out the rounds or use {DEFAULT_SCHEME}")
        if self.move not in scheme.moves:
            others = " or ".join(name for name, each in SCHEMES.items() if self.move in each.moves)
            raise UserError(f'the scheme {self.scheme} moves all samples: use move="{self.move}" with {others}')

    def to_json(self) -> dict[str, Any]:
        """Return the options as a JSON-able dictionary."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """A Monte-Carlo experiment: many runs of the estimators on samples drawn from a model.

    Attributes
    ----------
    model : {"two-point-auc", "normal-product"}
        See `mpi_ustat.paper.montecarlo`.
    epsilon : float
        ε of the two-point model.
    conditional : bool
        Draw the two-point samples given that both rare values occur.
    mean_x, mean_z : float
        Means of the normal product kernel's samples, whose variances are 1.
    n, m : int
        Points per sample.
    n_workers, n_rounds, scheme, move, shuffle, aggregate, empty
        As in `mpi_ustat.estimate`.
    local : bool
        Whether to compute each round's complete local statistic.
    pairs : tuple of int
        B of the incomplete local statistics to compute, pairs per worker and round.
    total_pairs : tuple of int
        Numbers of pairs of the undistributed incomplete statistics to compute.
    n_runs : int
        Independent runs.
    seed : int
        The common seed.
    """

    model: str
    epsilon: float = 0.0
    conditional: bool = False
    mean_x: float = 0.0
    mean_z: float = 0.0
    n: int
    m: int
    n_workers: int
    n_rounds: int = 1
    scheme: str = DEFAULT_SCHEME
    move: str = "both"
    shuffle: str = "permutation"
    aggregate: str = "mean"
    empty: str = ""
    local: bool = True
    pairs: tuple[int, ...] = ()
    total_pairs: tuple[int, ...] = ()
    n_runs: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse what can't be meant, naming the option, its value and what is allowed."""
        _choice("model", self.model, ("two-point-auc", "normal-product"))
        if not 0.0 <= self.epsilon < 1.0 or (self.conditional and self.epsilon == 0.0):
            raise UserError(f"epsilon is {self.epsilon}: give a probability below 1, above 0 if conditional")
        if self.conditional and self.model != "two-point-auc":
            raise UserError("only the two-point model is simulated conditionally")
        for name, value in (("n", self.n), ("m", self.m), ("number of runs", self.n_runs)):
            _at_least(name, value, 1)
        for pairs in (*self.pairs, *self.total_pairs):
            _at_least("number of pairs", pairs, 1)
        self.estimate_config()

    def estimate_config(self, n_pairs: int | None = None) -> EstimateConfig:
        """Return the options of one run's estimation, over `n_pairs` sampled pairs a worker or all of them."""
        return EstimateConfig(
            scheme=self.scheme,
            n_workers=self.n_workers,
            n_rounds=self.n_rounds,
            n_pairs=n_pairs,
            aggregate=self.aggregate,
            empty=self.empty,
            move=self.move,
            shuffle=self.shuffle,
            seed=self.seed,
            stderr=False,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as a JSON-able dictionary."""
        return asdict(self) | {"pairs": list(self.pairs), "total_pairs": list(self.total_pairs)}


EXCHANGES = ("rows", "scores")
OPTIMIZERS = ("sgd", "lbfgs")
_OF_SCORES = ("exchange", "batch_points", "optimizer", "tolerance")
_OF_ROWS = ("batch_pairs", "repartition_every", "scheme", "move", "shuffle", "empty")


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """What `mpi_ustat.learn` is to minimise, and how: its options, which its docstring explains."""

    objective: str = "linear"
    loss: str = DEFAULT_LOSS
    l2: float = 0.0
    learning_rate: float = 0.01
    decay: float = 0.0
    momentum: float = 0.9
    batch_pairs: int | None = 100
    repartition_every: int | None = 25
    scheme: str = DEFAULT_SCHEME
    move: str = "both"
    shuffle: str = "auto"
    empty: str = ""
    n_workers: int
    iterations: int = 1000
    init: str = "normal"
    eval_every: int = 25
    monitor_pairs: int = 450_000
    exchange: str = "rows"
    batch_points: int | None = 100
    optimizer: str = "sgd"
    tolerance: float = 1e-6
    early_stopping: int | None = None
    keep: str = "best"
    seed: int

    def __post_init__(self) -> None:
        """Refuse what can't be meant, naming the option, its value and what is allowed."""
        self._check_exchange()
        whole = (
            "batch_points",
            "batch_pairs",
            "repartition_every",
            "n_workers",
            "iterations",
            "eval_every",
            "monitor_pairs",
            "early_stopping",
            "seed",
        )
        for name in whole:
            object.__setattr__(self, name, _plain(getattr(self, name)))
        # How rows lie over the workers is what it is in an estimation.
        checked = EstimateConfig(
            scheme=self.scheme,
            move=self.move,
            shuffle=self.shuffle,
            empty=self.empty,
            n_workers=self.n_workers,
            n_pairs=self.batch_pairs,
            seed=self.seed,
        )
        object.__setattr__(self, "empty", checked.empty)
        _choice("loss", self.loss, tuple(LOSSES))
        _choice("initialisation", self.init, ("normal", "zeros"))
        _choice("keep", self.keep, ("best", "last"))
        if self.early_stopping is not None:
            _at_least("number of evaluations before an early stop", self.early_stopping, 1)
        for name in ("iterations", "eval_every", "monitor_pairs"):
            _at_least(name.replace("_", " "), getattr(self, name), 1)
        if self.repartition_every is not None:
            _at_least("number of iterations between repartitions", self.repartition_every, 1)
            if scheme_of(self.scheme).as_they_lie:
                raise UserError(f"{self.scheme} has one partition only: repartition never, or use {DEFAULT_SCHEME}")
        for name in ("l2", "learning_rate", "decay", "momentum"):
            value, below = getattr(self, name), 1.0 if name == "momentum" else math.inf
            if not 0.0 <= value < below:
                limit = " and below 1" if name == "momentum" else ""
                raise UserError(f"the {name.replace('_', ' ')} is {value!r}: give a number of at least 0{limit}")

    def _check_exchange(self) -> None:
        """Refuse options of one exchange for the other."""
        _choice("exchange", self.exchange, EXCHANGES)
        _choice("optimizer", self.optimizer, OPTIMIZERS)
        if self.exchange == "rows":
            if self.optimizer != "sgd":
                raise UserError(
                    f'optimizer="{self.optimizer}" needs all pairs: use exchange="scores", batch_points=None'
                )
            return
        # Rows stay, and every pair of the points of a step counts.
        object.__setattr__(self, "repartition_every", None)
        object.__setattr__(self, "batch_pairs", None)
        if self.optimizer == "lbfgs" and self.batch_points is not None:
            raise UserError('optimizer="lbfgs" needs all points in every step: use batch_points=None')
        if not 0.0 < self.tolerance < math.inf:
            raise UserError(f"the tolerance is {self.tolerance!r}: give a positive number")
        if self.batch_points is not None:
            _at_least("number of points of each class a worker and step", _plain(self.batch_points), 1)

    def to_json(self) -> dict[str, Any]:
        """Return the options as a JSON-able dictionary; of those that only one exchange has, its own."""
        options = asdict(self)
        others = _OF_SCORES if self.exchange == "rows" else _OF_ROWS
        return {name: value for name, value in options.items() if name not in others}


def _plain(value: Any) -> Any:
    """Return NumPy's integers as Python's, which JSON knows; everything else as it is."""
    return value if isinstance(value, int) or not hasattr(value, "__index__") else int(value)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"{name} is {value!r}{did_you_mean(str(value), allowed)}: use one of {', '.join(allowed)}")


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"the {name} is {value!r}: give a whole number of at least {least}")
    if value >= 2**63:
        raise UserError(f"the {name} is {value}: give one below 2^63")
