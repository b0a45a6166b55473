"""The partition schemes by name."""

from __future__ import annotations

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.schemes.as_is import AsIs
from mpi_ustat.schemes.complete import Complete
from mpi_ustat.schemes.fixed_shuffle import FixedShuffle
from mpi_ustat.schemes.prop_swor import PropSwor
from mpi_ustat.schemes.prop_swr import PropSwr
from mpi_ustat.schemes.rotation import Rotation
from mpi_ustat.schemes.scheme import Scheme
from mpi_ustat.schemes.swor import Swor

SCHEMES: dict[str, Scheme] = {
    each.name: each for each in (PropSwor(), Rotation(), Swor(), PropSwr(), FixedShuffle(), AsIs())
}
"""Those that options name; another one is added by putting it here."""

DEFAULT_SCHEME = PropSwor.name
COMPLETE = Complete()
"""What plans compare with the schemes: all pairs, of no partition."""


def scheme_of(name: str) -> Scheme:
    """Return the scheme of a name.

    Raises
    ------
    UserError
        If there is none.
    """
    found = COMPLETE if name == COMPLETE.name else SCHEMES.get(name)
    if found is None:
        raise UserError(f"scheme is {name!r}{did_you_mean(name, SCHEMES)}: use one of {', '.join(SCHEMES)}")
    return found


def scheme_help() -> str:
    """Return a line about each scheme."""
    return "schemes:\n" + "".join(f"  {name:<15} {each.summary}\n" for name, each in SCHEMES.items())


def who_moves() -> str:
    """Return the default of `move`, and the schemes under which it has others."""
    others = {move: name for name, each in SCHEMES.items() for move in each.moves if move not in Scheme.moves}
    return "; ".join([f"default {Scheme.moves[0]}", *(f"{move}: {name} only" for move, name in others.items())])


def otherwise_empty() -> str:
    """Return the default treatment of a worker without a pair, and the schemes that have another one."""
    others = [f"{each.name}: {each.empty}" for each in SCHEMES.values() if each.empty != Scheme.empty]
    return "; ".join([f"default {Scheme.empty}", *others])
