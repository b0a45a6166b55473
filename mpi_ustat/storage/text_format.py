"""What is said of delimited text that its lines don't tell."""

from __future__ import annotations

import codecs
import itertools
import re
from dataclasses import dataclass
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.storage.packed import UTF8

CHOICES = {"decimal": ("point", "comma"), "header": ("yes", "no")}
"""The values of what has few."""

_WORDS = {
    "tab": "\t",
    "\\t": "\t",
    "blank": " ",
    "comma": ",",
    "semicolon": ";",
    "point": ".",
    "bar": "|",
    "apostrophe": "'",
}
"""What signs are called that a shell, or a list of options, would take for its own."""

OF_THOUSANDS = ("comma", "point", "blank", "apostrophe")
"""What may be between groups of three digits, as people write them."""


@dataclass(frozen=True)
class TextFormat:
    """How delimited text is to be read where its first lines are not to tell.

    Attributes
    ----------
    decimal : str
        ``"point"`` or ``"comma"``.
    separator : str or None
        The sign between cells; a blank stands for runs of blanks.
    comment : str or None
        What lines begin with that are left out.
    header : str or None
        ``"yes"`` or ``"no"``: whether the first line names the columns.
    thousands : str or None
        The sign between groups of three digits, in numbers that have it in all the right places.
    encoding : str
        As Python calls it.

    Raises
    ------
    UserError
        If they are not that, or contradict each other.
    """

    decimal: str = "point"
    separator: str | None = None
    comment: str | None = None
    header: str | None = None
    thousands: str | None = None
    encoding: str = UTF8

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                what = "decimal sign" if name == "decimal" else name
                raise UserError(f"the {what} is '{value}': choose {' or '.join(choices)}")
        for name in ("separator", "thousands"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._sign(name, given))
        if self.comment is not None:
            object.__setattr__(self, "comment", self.comment.strip())
            if not self.comment or not self.comment.isprintable():
                raise UserError('comments begin with no visible sign: give one, such as comment="#"')
        uses = {"of decimals": self.decimal_sign, "of thousands": self.thousands, "between cells": self.separator}
        for one, other in itertools.combinations(uses, 2):
            # Quotation marks around numbers tell other signs of thousands from those between cells.
            if uses[one] == uses[other] is not None and (one == "of decimals" or uses[one] == " "):
                raise UserError(f"'{uses[one]}' is the sign both {one} and {other}: choose another for one of them")
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
            "".encode(self.encoding)
        except (LookupError, ValueError):
            raise UserError(
                f"the encoding '{self.encoding}' is not known: choose one that Python knows, such as latin-1, cp1252, "
                "utf-16"
            ) from None

    def _sign(self, name: str, given: str) -> str:
        sign = _WORDS.get(given, given)
        forbidden = '"\r\n+-.' if name == "separator" else '"\r\n+-\t'
        if len(sign) != 1 or sign in forbidden or sign.isalnum() or (name == "separator" and not sign.isascii()):
            raise UserError(f"the {name} is '{given}', which is no sign of one character: give one, such as ; or tab")
        return sign

    @property
    def decimal_sign(self) -> str:
        """The sign before the fraction of a number."""
        return "," if self.decimal == "comma" else "."

    def given(self) -> dict[str, Any]:
        """Return the options that are given, by name."""
        return {name: value for name, value in vars(self).items() if value != getattr(TextFormat, name)}


ONLY_LINES = TextFormat()
"""For text of which nothing is said."""


def refuse_if_said(name: str, said: TextFormat, kind: str) -> None:
    """Refuse what is said of delimited text for a file that is none."""
    for option, value in said.given().items():
        words = f'{option}="{value}"' if re.fullmatch(r"[\w-]+", value) else f"{option}="
        raise UserError(f"{words} is for {kind}, not for '{name}': leave it out")
