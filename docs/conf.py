"""Sphinx's settings: Markdown pages by MyST, the API from numpydoc docstrings."""

from __future__ import annotations

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
