"""What a kernel can be told, declared once for the command line and for the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mpi_ustat.errors import UserError


@dataclass(frozen=True)
class Option:
    """An option of a kernel, which its class takes by keyword.

    Attributes
    ----------
    name : str
    help : str
        A line for the command line's help, in which the default is told unless it is a sequence.
    default : Any
    type : callable
        Makes the value from a text: str, int, float, or a function that raises a UserError for what it can't read.
    choices : tuple of str
        All values that it can have; empty: any.
    label : str
        What messages call it, if not by its name.
    flag : str or None
        Its name on the command line, if it is another one; None: it isn't there.
    metavar : str, optional
        What stands for the value in the help.
    words : tuple of str
        What it can be instead of a number.
    bare : str, optional
        Its value where the command line has the flag alone.
    several : bool
        Whether a test takes a list of its values.
    """

    name: str
    help: str
    default: Any
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    label: str = ""
    flag: str | None = ""
    metavar: str | None = None
    words: tuple[str, ...] = ()
    bare: str | None = None
    several: bool = False

    @property
    def argument(self) -> str | None:
        """Its name among the command line's arguments; None if it isn't there."""
        return None if self.flag is None else (self.flag or self.name).replace("-", "_")

    @property
    def described(self) -> str:
        """Its help, with the default."""
        shown = f"{self.default:g}" if isinstance(self.default, float) else self.default
        return self.help if isinstance(self.default, tuple | list) else f"{self.help} (default {shown})"

    def read(self, text: str) -> Any:
        """Return the value that a text means, or the list of values, or refuse it."""
        if self.several and "," in text:
            return [self.read(each.strip()) for each in text.split(",")]
        if text in self.words:
            return text
        try:
            return self.type(text)
        except UserError:
            raise
        except ValueError as error:
            raise self._no_number(text) from error

    def checked(self, value: Any) -> Any:
        """Return a value that it can have, or refuse it."""
        if self.several and isinstance(value, list | tuple):
            raise UserError(f"a list of values of {self.label or self.name} is for a test: give one")
        if self.choices and value not in self.choices:
            raise UserError(f"{self.label or self.name} must be {' or '.join(self.choices)}, not {value!r}")
        if isinstance(value, str) and value in self.words:
            return value
        if self.type in (int, float) and (isinstance(value, bool) or not isinstance(value, Real)):
            raise self._no_number(value)
        return value

    def _no_number(self, value: Any) -> UserError:
        return UserError(f"{self.label or self.name} must be {' or '.join(['a number', *self.words])}, not {value!r}")
