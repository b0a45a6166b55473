"""The kernels that go by a name, those that other packages have registered, and those of the user."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.concordance import Concordance
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.gini import Gini
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.similarity_histogram import SimilarityHistogram
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.user_pairs import BlockFunction
from mpi_ustat.kernels.users import kernel_of
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.user.importing import load_named
from mpi_ustat.wording import count_of

ENTRY_POINTS = "mpi_ustat.kernels"
"""Group of the entry points by which other packages register classes of kernels, by the kernels' names."""

DEFAULT_KERNEL = AUC.name

_OURS = (
    AUC,
    VUS,
    Gini,
    Variance,
    Kendall,
    Concordance,
    Product,
    EnergyDistance,
    MMD,
    FalseMatchRate,
    SimilarityHistogram,
)

KERNELS: dict[str, type[Kernel]] = {each.name: each for each in _OURS}
"""Those of this package; another one is added by putting its class here."""


@functools.cache
def installed() -> dict[str, EntryPoint]:
    """Return the kernels that other packages have registered, by name, none of which is imported."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS) if point.name not in KERNELS}


def find_kernel(name: str) -> type[Kernel] | None:
    """Return the class of kernels that goes by a name, None if there is none.

    Another package's that can't be imported, or lacks a part, is refused.
    """
    if name in KERNELS or not name or ":" in name or name not in installed():
        return KERNELS.get(name)
    place = installed()[name].value
    found = load_named("kernel", place, ())
    if not (isinstance(found, type) and issubclass(found, Kernel)):
        raise UserError(f"the kernel {name} is registered as {place}, which is no subclass of Kernel: make it one")
    if getattr(found, "name", None) != name:
        raise UserError(f"the kernel {name} is registered as {place}, which has another name or none: set its name")
    return _whole(found, place)


def options_of(kernel: str | type[Kernel]) -> dict[str, Option]:
    """Return the options of a class of kernels or of the one that goes by a name, none if there is no such one."""
    found = find_kernel(kernel) if isinstance(kernel, str) else kernel
    return {} if found is None else {option.name: option for option in found.options}


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
    kernel : str, callable, class or Kernel
        A function of points, or a function or class that returns one, or a `Kernel`, when it is given `options`.
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
    found: Any = kernel
    name = getattr(kernel, "__name__", getattr(kernel, "name", "user kernel"))
    if isinstance(kernel, str):
        found, name = find_kernel(kernel) or _load(kernel), kernel
    if isinstance(found, type) and issubclass(found, Kernel):
        return _named(_whole(found, name), n_samples, ties, columns, dict(options or {}))
    made = kernel_of(found, name, tile, options)
    _refuse_columns(made.name, columns)
    if len(made.degrees) != n_samples:
        raise UserError(
            f"the kernel {made.name} is for {count_of(len(made.degrees), 'sample')}, not {n_samples}: give it as many, "
            "or set its degrees"
        )
    return made


def n_samples_of(kernel: str, options: Mapping[str, Any] | None = None) -> tuple[int, ...] | None:
    """Return the numbers of samples that a kernel with these options can have; None: any from 2 on."""
    known = find_kernel(kernel)
    if known is None:
        found = _load(kernel)
        if not (isinstance(found, type) and issubclass(found, Kernel)):
            return (len(kernel_of(found, kernel, options=options).degrees),)
        known = found
    return known.samples or None


def _load(kernel: str) -> Any:
    return load_named("kernel", kernel, [*KERNELS, *installed()])


def _whole(found: type[Kernel], place: str) -> type[Kernel]:
    """Return a class of kernels, or refuse one that lacks a part."""
    if inspect.isabstract(found):
        missing = " and ".join(sorted(found.__abstractmethods__))
        raise UserError(f"the kernel {found.name} has no {missing}: write it in its class {place}")
    return found


def _named(known: type[Kernel], n_samples: int, ties: str, columns: int, options: dict[str, Any]) -> Kernel:
    name, declared = known.name, options_of(known)
    if n_samples not in (known.samples or range(2, n_samples + 1)):
        wanted = " or ".join(map(str, known.samples)) or "2 or more"
        raise UserError(
            f"the kernel {name} is for {count_of(wanted, 'sample')}, not {n_samples}: two are x and z, one is x alone, "
            "several go to estimate_samples"
        )
    for option in options:
        if option not in declared:
            has = f"it has {', '.join(declared)}" if declared else "it has none"
            raise UserError(f"the kernel {name} has no option {option}{did_you_mean(option, declared)}: {has}")
    given: dict[str, Any] = {"columns": columns} | ({"ties": ties} if ties else {})
    for option, value in given.items():
        if option in declared and options.setdefault(option, value) != value:
            own = options[option]
            raise UserError(
                f"{option} of the kernel {name} is {value!r}, and {own!r} among its options: give one of them"
            )
    if not known.of_columns:
        _refuse_columns(name, columns)
    chosen = {option: each.checked(options.get(option, each.default)) for option, each in declared.items()}
    return known.of_samples(n_samples, **chosen)


def _refuse_columns(name: str, columns: int) -> None:
    if columns > 1:
        raise UserError(f"the kernel {name} gives one estimate, not one for each of {columns} columns: use auc")
