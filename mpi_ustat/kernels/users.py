"""The kernels that users bring: functions, classes and objects, or factories of these, that are told options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.tuples import make_user_kernel


def kernel_of(found: Any, name: str, tile: int = DEFAULT_TILE, options: Mapping[str, Any] | None = None) -> Kernel:
    """Return the kernel that an object of a user's stands for.

    Parameters
    ----------
    found : Kernel, callable, or class
        A kernel; or a function that is one, as `tuples.make_user_kernel` takes it; or what returns one or the other
        when it is called with the options. Without any, a class is called, and a function that takes no points.
    name : str
        What messages and results call it.
    tile : int
        Side of the tiles in which functions of two blocks are evaluated.
    options : mapping, optional
        By name.

    Raises
    ------
    UserError
        If it can't be called so, or returns something else.
    """
    if isinstance(found, Kernel):
        if options:
            raise UserError(f"the kernel {name} has no option {next(iter(options))}: it is made already; leave it out")
        return found
    if not callable(found):
        raise UserError(f"the kernel {name} is not a function: give one of points")
    if options or isinstance(found, type) or _takes_no_points(found, name):
        found = _made(found, name, dict(options or {}))
    return found if isinstance(found, Kernel) else make_user_kernel(found, name, tile)


def _takes_no_points(found: Any, name: str) -> bool:
    """Tell whether a function makes a kernel without being told anything, as it has no place for points."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of what is written in C
        return False
    degrees = getattr(found, "degrees", (1, 1))
    points = [None] * sum(degrees) if isinstance(degrees, tuple) else [None, None]
    if _binds(signature, *points):
        return False
    if _binds(signature):
        return True
    needed = [each.name for each in signature.parameters.values() if each.default is each.empty]
    if len(needed) < len(points):
        raise UserError(
            f"the kernel {name} takes {' and '.join(needed)}, and has no place for {len(points)} points: give it "
            "options of the kernel if it makes one, or let it take points"
        )
    return False


def _binds(signature: inspect.Signature, *given: Any) -> bool:
    try:
        signature.bind(*given)
    except TypeError:
        return False
    return True


def _made(factory: Any, name: str, options: dict[str, Any]) -> Any:
    """Return the kernel that a factory makes with these options."""
    given = ", ".join(f"{option}={value!r}" for option, value in options.items())
    try:
        made = factory(**options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the kernel {name} can't be made by {name.rpartition(':')[2]}({given}) ({type(error).__name__}: {error}): "
            "options are for a function or a class that takes them by name and returns the kernel"
        ) from error
    if not callable(made) and not isinstance(made, Kernel):
        raise UserError(
            f"the kernel {name} is made by {name.rpartition(':')[2]}({given}), which returns {type(made).__name__}: "
            "return a function of points, or a Kernel"
        )
    return made
