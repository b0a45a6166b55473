"""The kernels that go by a name, and those of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.gini import Gini, OneSampleGini
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.similarity_histogram import SimilarityHistogram
from mpi_ustat.kernels.tuples import make_user_kernel
from mpi_ustat.kernels.user_pairs import DEFAULT_TILE, BlockFunction
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.user.importing import load_named


@dataclass(frozen=True)
class Named:
    """A kernel that goes by a name.

    Attributes
    ----------
    samples : tuple of int
        The numbers of samples that it can have; empty: any from 2 on.
    make : callable
        Takes the number of samples and the options by keyword.
    options : tuple of str
        The options that it has.
    summary : str
        What it estimates, in a line.
    """

    samples: tuple[int, ...]
    make: Callable[..., Kernel]
    options: tuple[str, ...]
    summary: str


_EDGES = tuple(i / 10 - 1.0 for i in range(21))

KERNELS: dict[str, Named] = {
    "auc": Named((2,), lambda k, **o: AUC(**o), ("ties", "columns"), "area under the ROC curve, of two samples"),
    "vus": Named((), lambda k, **o: VUS(k, **o), ("ties",), "volume under the ROC surface, of K ordered classes"),
    "gini": Named((1, 2), lambda k, **o: OneSampleGini() if k == 1 else Gini(), (), "Gini mean difference"),
    "variance": Named((1,), lambda k, **o: Variance(), (), "variance"),
    "kendall": Named((1,), lambda k, **o: Kendall(**o), ("tau",), "Kendall's tau-a or tau-b, of two columns"),
    "product": Named((2,), lambda k, **o: Product(), (), "product of the means"),
    "energy": Named((2,), lambda k, **o: EnergyDistance(), (), "energy distance"),
    "mmd": Named((2,), lambda k, **o: MMD(**o), ("kernel", "bandwidth"), "unbiased squared maximum mean discrepancy"),
    "fmr": Named(
        (1, 2),
        lambda k, **o: FalseMatchRate(o.pop("threshold", 0.5), one_sample=k == 1, **o),
        ("threshold", "metric"),
        "share of pairs of embeddings whose similarity reaches a threshold",
    ),
    "similarity-histogram": Named(
        (1, 2),
        lambda k, **o: SimilarityHistogram(o.pop("edges", _EDGES), one_sample=k == 1, **o),
        ("edges", "metric"),
        "shares of pairs of embeddings by similarity",
    ),
}


def make_kernel(
    kernel: str | BlockFunction | Kernel,
    n_samples: int = 2,
    *,
    ties: str = "",
    tile: int = DEFAULT_TILE,
    columns: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Kernel:
    """Return the kernel of that name, at ``module:function``, or made from a function, for so many samples.

    Parameters
    ----------
    kernel : str, callable or Kernel
    n_samples : int
        K.
    ties : str
        What ties count, for the kernels to which that matters; empty: what `options` say, or the kernel's default.
    tile : int
        Side of the tiles in which a user's kernel is evaluated.
    columns : int
        Scores of each point, for the AUC.
    options : mapping, optional
        Other options of the kernel, by name.

    Raises
    ------
    UserError
        If there is no such kernel, module or function; if it is for another number of samples; if it doesn't have such
        an option, or `options` contradict `ties` or `columns`.
    """
    made: Kernel
    if isinstance(kernel, Kernel):
        made = kernel
    elif not isinstance(kernel, str):
        made = make_user_kernel(kernel, getattr(kernel, "__name__", "user kernel"), tile)
    elif kernel in KERNELS:
        return _named(kernel, KERNELS[kernel], n_samples, ties, columns, dict(options or {}))
    else:
        made = make_user_kernel(_load(kernel), kernel, tile)
    if options:
        raise UserError(f"the kernel {made.name} has no option {next(iter(options))}: leave it out")
    _refuse_columns(made.name, columns)
    if len(made.degrees) != n_samples:
        raise UserError(
            f"the kernel {made.name} is for {len(made.degrees)} sample(s), not {n_samples}: give it as many, or set "
            "its degrees"
        )
    return made


def n_samples_of(kernel: str) -> tuple[int, ...] | None:
    """Return the numbers of samples that a kernel can have; None: any from 2 on.

    Raises
    ------
    UserError
        If there is no such kernel, module or function.
    """
    if kernel in KERNELS:
        return KERNELS[kernel].samples or None
    return (len(make_user_kernel(_load(kernel), kernel).degrees),)


def allows_infinite(kernel: str) -> bool:
    """Return whether infinite points have a meaning for a kernel, by its name."""
    named = KERNELS.get(kernel)
    return named is None or named.make(named.samples[0] if named.samples else 2).allows_infinite


def _load(kernel: str) -> Callable[..., Any]:
    function: object = load_named("kernel", kernel, ", ".join(KERNELS))
    if not callable(function):
        raise UserError(f"the kernel {kernel} is not a function: give one of points")
    return function


def _named(name: str, named: Named, n_samples: int, ties: str, columns: int, options: dict[str, Any]) -> Kernel:
    allowed = named.samples or range(2, n_samples + 1)
    if n_samples not in allowed:
        wanted = " or ".join(map(str, named.samples)) or "2 or more"
        raise UserError(
            f"the kernel {name} is for {wanted} sample(s), not {n_samples}: two come out of a file with --label, one "
            "without, several with --classes"
        )
    for option in options:
        if option not in named.options:
            has = f"it has {', '.join(named.options)}" if named.options else "it has none"
            raise UserError(f"the kernel {name} has no option {option}: {has}")
    given: dict[str, Any] = {"columns": columns} | ({"ties": ties} if ties else {})
    for option, value in given.items():
        if option in named.options and options.setdefault(option, value) != value:
            own = options[option]
            raise UserError(
                f"{option} of the kernel {name} is {value!r}, and {own!r} among its options: give one of them"
            )
    if "columns" not in named.options:
        _refuse_columns(name, columns)
    return named.make(n_samples, **options)


def _refuse_columns(name: str, columns: int) -> None:
    if columns > 1:
        raise UserError(f"the kernel {name} gives one estimate, not one for each of {columns} columns: use auc")
