"""Finding what a user names as ``module:name`` or ``./file.py:name``."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from mpi_ustat.errors import UserError, did_you_mean

_LISTED = 8


def load_named(what: str, path: str, known: Sequence[str]) -> Any:
    """Return the object at ``module:name`` or ``./file.py:name``, or refuse what can't be imported.

    Modules are found where Python looks for them, and then in the current folder; what a file imports, also in the
    folder of the file.

    For messages, `what` it is to be ("kernel"), and the `known` names that need no module (auc, product, gini).
    """
    module, colon, name = path.rpartition(":")
    file = module if colon else path
    if file.endswith(".py") and not (colon and name):
        raise UserError(_lacks_function(what, file))
    if not colon:
        raise UserError(
            f"there is no {what} {path!r}{did_you_mean(path, known)}: use one of {', '.join(known)}, or your own as "
            "module:function or ./file.py:function"
        )
    try:
        return getattr(_loaded(module), name)
    except (Exception, SystemExit) as error:  # a module may leave instead of failing
        # Where nothing of the user's has failed, there is no more to see.
        absent = isinstance(error, FileNotFoundError) and error.filename == os.path.abspath(module)
        in_theirs = error.__traceback__ is not None and error.__traceback__.tb_next is not None and not absent
        meant = did_you_mean(name, vars(module_of(path) or object)) if isinstance(error, AttributeError) else ""
        raise UserError(
            f"the {what} {path} can't be imported ({type(error).__name__}: {error}){meant}: {_remedy(module, name)}"
        ) from (error if in_theirs else None)


def _lacks_function(what: str, file: str) -> str:
    """Return the sentence that refuses a file without the name of a function in it."""
    if not os.path.isfile(file):
        return f"there is no file '{file}': check its name, and write ./file.py:function"
    here = file if os.sep in file else f".{os.sep}{file}"
    try:
        with open(file, "rb") as stream:
            parts = ast.parse(stream.read()).body
    except (OSError, SyntaxError, ValueError):
        parts = []
    has = [each.name for each in parts if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name[0] != "_"]
    known = f" with one of {', '.join(has[:_LISTED])}" if has else ""
    return f"the {what} '{file}' names no function in the file: write {here}:function{known}"


def module_of(path: str) -> ModuleType | None:
    """Return the module of what was found at a path, None if none was."""
    module, colon, _ = path.rpartition(":")
    return sys.modules.get(_name(module)) if colon else None


def _loaded(module: str) -> ModuleType:
    if _is_file(module):
        return _of_file(module)
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # the last, so that it hides nothing
    return importlib.import_module(module)


def _of_file(path: str) -> ModuleType:
    """Return the module that a file holds, which is run once."""
    file = os.path.abspath(path)
    name = _name(path)
    if (known := sys.modules.get(name)) is not None and known.__file__ == file:
        return known
    folder = os.path.dirname(file)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # as the file's name ends in .py
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[name]
        raise
    return found


def _is_file(module: str) -> bool:
    return module.endswith(".py") and (os.sep in module or os.path.isfile(module))


def _name(module: str) -> str:
    """Return a module's name: that of a file so that it takes no other's place."""
    if not _is_file(module):
        return module
    return os.path.basename(module).removesuffix(".py").replace(".", "_") + " (a file)"


def _remedy(module: str, name: str) -> str:
    if _is_file(module):
        return "check the file and the name"
    file = f"{module}.py"
    found = getattr(sys.modules.get(module), "__file__", None)
    if os.path.isfile(file) and found != os.path.abspath(file):
        return f"{module} is another module, {found}; to take the file of this folder, write ./{file}:{name}"
    return "check the name and PYTHONPATH, or name the file, as in ./file.py:function"
