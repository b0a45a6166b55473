"""A parser of command lines that says what is wrong in one sentence, and what was meant."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpi_ustat.errors import UserError, did_you_mean

_IN_OUR_WORDS = {
    r"^argument (\S+): invalid int value: (.*)$": r"\1 is \2: give a whole number",
    r"^argument (\S+): invalid float value: (.*)$": r"\1 is \2: give a number",
    r"^argument (\S+): expected (?:at least )?one argument$": r"\1 is given without a value: give one",
    r"^the following arguments are required: (.*)$": r"\1 is missing: give it",
}
"""What argparse says, and what is said instead."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are ordinary user errors, so that one rank prints them for all."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No option, but a value: also a list of numbers that begins with a negative one.
        self._negative_number_matcher = re.compile(r"-[\d.][\d.,eE+-]*$")
        self.register("type", int, whole_number)

        self.before: Callable[[Sequence[str]], None] = lambda words: None
        """Is called with the words before they are parsed, some of which may bring options with them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the parsed words, and those that were not understood."""
        self.before(args or ())
        meant, rest = super().parse_known_args(args, namespace)
        if rest and self._subparsers is None:
            self.error(f"'{rest[0]}' stands where nothing takes it: give the files next to each other, options apart")
        return meant, rest

    def _parse_optional(self, arg_string: str) -> Any:
        found = super()._parse_optional(arg_string)
        # Of all of them argparse would complain at the end, after what is missing because of the wrong spelling.
        first = found[0] if isinstance(found, list) else found  # from Python 3.12 on all that it may be
        if first is not None and first[0] is None and self._subparsers is None:
            self.refuse_option(arg_string)
        return found

    def refuse_option(self, word: str) -> NoReturn:
        """Refuse an option that there isn't, with its value if it has one."""
        option = word.partition("=")[0]
        self.error(f"there is no option {option}{did_you_mean(option, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        """Refuse what argparse complains of, in our words where its own are a programmer's."""
        for pattern, words in _IN_OUR_WORDS.items():
            message = re.sub(pattern, words, message)
        raise UserError(f"{message} (see {self.prog} --help)")

    def refuse_unknown_first(self, words: Sequence[str]) -> None:
        """Refuse an option before a command that is none: nothing else could be found missing without it."""
        for word in itertools.takewhile(lambda word: word.startswith("-"), words):
            if not any(option.startswith(word) for option in self._option_string_actions):
                self.refuse_option(word)


def whole_number(text: str) -> int:
    """Return the integer that an option's text writes.

    Raises
    ------
    ArgumentTypeError
        If it is none, or no 64 bits hold it.
    """
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}")
    if len(text.strip().lstrip("+-").lstrip("0")) > 19 or abs(int(text)) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text} is too large: give a whole number below 2^63")
    return int(text)
