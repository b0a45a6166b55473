"""What can go wrong that the caller can mend, or has to know."""

from __future__ import annotations

import re

_LONGEST_WORD = 100
_LONGEST_TEXT = 1000


def brief(text: str) -> str:
    """Return a text as people can read it: very long words and texts lose their middle."""
    text = re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: _without_middle(word[0], _LONGEST_WORD), text)
    return _without_middle(text, _LONGEST_TEXT)


def _without_middle(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 4 :]}"


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
