"""Finding what a user names as ``module:name``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from mpi_ustat.errors import UserError, did_you_mean


def load_named(what: str, path: str, known: Sequence[str]) -> Any:
    """Return the object at ``module:name``, or refuse a path without a colon and one that can't be imported.

    For messages, `what` it is to be ("kernel"), and the `known` names that need no module (auc, product, gini).
    """
    module, colon, name = path.partition(":")
    if not colon:
        raise UserError(
            f"there is no {what} {path!r}{did_you_mean(path, known)}: use one of {', '.join(known)}, or your own as "
            "module:function"
        )
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # a module may leave instead of failing
        raise UserError(
            f"the {what} {path} can't be imported ({type(error).__name__}: {error}): check the name and PYTHONPATH"
        ) from error
