"""Sphinx's settings: Markdown pages by MyST, the API from numpydoc docstrings."""

from __future__ import annotations

import re
from typing import Any

import mpi_ustat

project = "mpi_ustat"
author = copyright = "the mpi_ustat developers"
release = version = mpi_ustat.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
]
exclude_patterns = ["_build", "examples/*"]
html_theme = "furo"
html_title = f"mpi_ustat {release}"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
autosummary_generate = False
# Docstrings write `name` for a parameter or a file; none of these is a link that could break.
default_role = "code"
nitpicky = False


# ---------------------------------------------------------------------------------------------------------------------
# Formulas in docstrings are plain text, for `help`: w_k. = Σ_l w_kl, exp(-|x-y|). Sphinx takes `w_` for a link and |…|
# for a substitution, unless they are escaped.

_LINK = re.compile(r"(?<![\\`\w])(\w+)(?<!\\)_(?![\w`])")
_BAR = re.compile(r"(?<![\\|])\|(?=\S)")
_CODE = re.compile(r"(``.*?``|`[^`]+`(?!_))")


def escape_formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "..", ":", "...")):
            continue
        pieces = _CODE.split(line)
        pieces[::2] = [_BAR.sub(r"\\|", _LINK.sub(r"\1\\_", piece)) for piece in pieces[::2]]
        lines[number] = "".join(pieces)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", escape_formulas, priority=900)  # after numpydoc
