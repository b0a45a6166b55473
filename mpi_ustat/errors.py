"""What can go wrong that the caller can mend, or has to know."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_LONGEST_WORD = 100
_LONGEST_TEXT = 1000
_MOST_COMPARED = 10_000  # names


def brief(text: str) -> str:
    """Return a text as people can read it: very long words and texts lose their middle."""
    text = re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: _without_middle(word[0], _LONGEST_WORD), text)
    return _without_middle(text, _LONGEST_TEXT)


def _without_middle(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 4 :]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question about the known name that a word is most like, to follow it in a sentence; empty without one.

    >>> did_you_mean("scroe", ["label", "score", "weight"])
    " (did you mean 'score'?)"
    >>> did_you_mean("zebra", ["label", "score", "weight"])
    ''
    """
    from difflib import get_close_matches

    if len(word) > _LONGEST_WORD or word.isdecimal():  # another number is as like as any
        return ""
    spelled: dict[str, str] = {}
    for name in islice(known, _MOST_COMPARED):
        spelled.setdefault(name.casefold(), name)
    alike = get_close_matches(word.casefold(), spelled, n=1)
    return f" (did you mean '{brief(spelled[alike[0]])}'?)" if alike else ""


class UserError(ValueError):
    """Something the caller can put right.

    The message is one sentence that names the cause and the remedy; the command line prints it alone and exits 2.
    """


class PlacedError(UserError):
    """A mistake in the data, whose sentence names the place: whichever rank met it, the place is the same."""


class DivergedError(ArithmeticError):
    """The parameters have left the range of doubles."""

    def __init__(self, iteration: int) -> None:
        super().__init__(
            f"diverged at iteration {iteration}: the parameters are not finite any more; use a smaller learning rate "
            "or standardised columns"
        )
        self.iteration = iteration
