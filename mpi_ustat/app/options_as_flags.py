"""Python's options in the command line's words: in what the library says, and in what it recommends.

Sentences of the library name its options as they are written in Python, and always in one of these forms:

    n_workers=   empty="skip"   empty="skip" or "zero"   complete=True   stderr=False   scheme="swor", aggregate="mean"

The command line says ``--workers``, ``--empty skip``, ``--empty skip or zero``, ``--complete``, ``--no-stderr``,
``--scheme swor --aggregate mean`` instead.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mpi_ustat.app.text_options import TEXT_OPTIONS
from mpi_ustat.estimation.config import EstimateConfig, LearnConfig

_OTHER_NAMES = {
    "n_workers": "workers",
    "n_rounds": "rounds",
    "n_pairs": "pairs",
    "clusters": "cluster",
    "groups": "group",
}
_OTHER_WORDS = {
    "two are x and z, one is x alone, several go to estimate_samples": "two come out of a file with --label, one "
    "without, several with --classes",
    "batch_points=None": "--batch-points all",
}
"""What the library takes as arguments, and the command line from files."""

_OF_FILES = ("label", "positive", "rest", "classes", "multiclass", "columns", *TEXT_OPTIONS, "overwrite", "resume")
"""What is said of the files that are read and written."""

_OF_ROWS = ("weights", "counts", "clusters", "strata", "groups")
_OF_KERNELS = ("standardize",)

_OF_RUNS = (each.name for config in (EstimateConfig, LearnConfig) for each in fields(config))
_NAMES = "|".join(dict.fromkeys((*_OF_RUNS, *_OF_FILES, *_OF_ROWS, *_OF_KERNELS)))
# Not inside a path or between single quotes, where texts of the user's stand.
_OPTION = re.compile(
    rf"""(?<![\w'/.=-])({_NAMES})=("[\w-]+"(?: or "[\w-]+")*|True\b|False\b|(?![\w"'/]))(?![\w'/.-])"""
)
_TOGETHER = re.compile(rf"{_OPTION.pattern}(?:, {_OPTION.pattern})+")


def in_flags(text: str) -> str:
    """Return a sentence of the library with the flags of the command line for Python's options.

    >>> in_flags('repartition (scheme="prop-swor"), use at most 3 workers (n_workers=), or stderr=False')
    'repartition (--scheme prop-swor), use at most 3 workers (--workers), or --no-stderr'
    """
    for python, words in _OTHER_WORDS.items():
        text = text.replace(python, words)
    text = _TOGETHER.sub(lambda found: found[0].replace(", ", " "), text)
    return _OPTION.sub(lambda found: " ".join(_flag(found[1], found[2].replace('"', ""))), text)


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Return options of the library as words of a command line.

    >>> as_flags({"scheme": "prop-swor", "n_rounds": 4, "stderr": False})
    ['--scheme', 'prop-swor', '--rounds', '4', '--no-stderr']
    """
    return [word for name, value in options.items() for word in _flag(name, str(value))]


def _flag(name: str, value: str) -> list[str]:
    flag = _OTHER_NAMES.get(name, name).replace("_", "-")
    if value == "False":
        return [f"--no-{flag}"]
    return [f"--{flag}"] + ([] if value in ("", "True") else [value])


def given_options(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return, of the library's options with these names, those that the command line gives."""
    values = {name: getattr(arguments, _OTHER_NAMES.get(name, name)) for name in names}
    return {name: value for name, value in values.items() if value is not None}
