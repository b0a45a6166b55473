"""What tells a user's function from what it was before: a digest of its source, or of its code where there is none."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import resolve_name
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from mpi_ustat.user.importing import module_of


def code_digest(function: Any, name: str) -> str:
    """Return a digest of a user's function or object, in hexadecimal.

    One that is named as ``module:name`` is known by the source of its module, and of those in its folder, or its
    package's, and below that it uses; any other by its code with constants, defaults and what it refers to, which other
    versions of Python compile to something else.

    Parameters
    ----------
    function : callable or object
    name : str
        As the user named it, or anything without a colon.
    """
    module = module_of(name)
    found = b"".join(_sources(module)) if module is not None else b""
    return hashlib.sha256(found or "\n".join(_described(function, _package(function))).encode()).hexdigest()[:16]


@functools.cache  # of the moment when it is first asked for: the file may change while it runs
def _sources(module: ModuleType) -> tuple[bytes, ...]:
    """Return the digests of a module's file and of those in its folder, or its package's, that it uses, sorted."""
    folder = os.path.dirname(getattr(module, "__file__", None) or "")
    for _ in range((module.__package__ or "").count(".")):
        folder = os.path.dirname(folder)
    files: dict[str, bytes] = {}
    waiting = [module]
    while waiting and folder:
        each = waiting.pop()
        file = getattr(each, "__file__", None)
        if file is None or file in files or not file.startswith(folder + os.sep) or not os.path.isfile(file):
            continue
        if _in_environment(file[len(folder) :]):
            continue
        with open(file, "rb") as stream:
            source = stream.read()
        files[file] = hashlib.sha256(source).digest()
        names = {*_of_its_values(each), *_imported(source, each.__package__)}
        waiting += [sys.modules[name] for name in names if name in sys.modules]
    return tuple(sorted(files.values()))


def _of_its_values(module: ModuleType) -> Iterator[str]:
    """Yield the names of the modules that a module refers to, or whose functions and classes it has."""
    for value in vars(module).values():
        if isinstance(value, FunctionType | type):
            yield value.__module__
        elif isinstance(value, ModuleType):
            yield value.__name__


def _imported(source: bytes, package: str | None) -> Iterator[str]:
    """Yield the names of the modules that a source imports, maybe no more than numbers from them."""
    with suppress(SyntaxError, ValueError):  # it is no Python
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                with suppress(ImportError):  # relative, and tried in vain
                    yield resolve_name("." * node.level + (node.module or ""), package)


def _described(value: Any, own: str) -> Iterator[str]:
    """Yield what makes a value what it is, as far as that doesn't change from one process to another.

    The code of other installed packages than `own` stays out: it is long, and changes by itself, as caches do.
    """
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:  # without recursion, whose depth has a limit
        value = waiting.pop()
        if isinstance(value, bool | int | float | complex | str | bytes | None) and not isinstance(value, np.generic):
            yield repr(value)
        elif id(value) not in seen:
            seen[id(value)] = value  # kept, or another value might get its number
            text, parts = _taken_apart(value, own)
            yield text
            waiting += reversed(parts)


def _taken_apart(value: Any, own: str) -> tuple[str, list[Any]]:
    """Return a text about a value, and what else it is made of."""
    text = ""
    parts: list[Any] = []
    if isinstance(value, CodeType):
        text = value.co_code.hex()
        parts = [value.co_names, value.co_consts]
    elif isinstance(value, FunctionType):
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        parts = [value.__defaults__, value.__kwdefaults__, cells, vars(value)]
        if _is_installed(value, own):
            text = f"{value.__module__}.{value.__qualname__}"
        else:
            parts += [value.__code__, *(value.__globals__.get(name) for name in _names(value.__code__))]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, staticmethod | classmethod):
        parts = [value.__func__]
    elif isinstance(value, property):
        parts = [value.fget]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, np.ndarray | np.generic):
        text = f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, dict):
        # An order may come from one of texts in a set, which is another in each process.
        parts = [each for item in sorted(value.items(), key=lambda item: repr(item[0])) for each in item]
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif not isinstance(value, ModuleType):
        kind = value if isinstance(value, type) else type(value)
        text = f"{kind.__module__}.{kind.__qualname__} {getattr(value, '__name__', '')}"
        parts = [each for of_kind in kind.__mro__ if not _is_installed(of_kind, own) for each in _written(of_kind)]
        if not isinstance(value, type):
            slots = [name for of_kind in kind.__mro__ for name in np.ravel(vars(of_kind).get("__slots__", ()))]
            parts += [getattr(value, "__dict__", None), [getattr(value, name, None) for name in slots]]
    return text, parts


def _is_installed(value: Any, own: str) -> bool:
    """Tell whether a function or a class is of Python itself, or of an installed package that is not `own`."""
    package = _package(value)
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package != own and (package in sys.stdlib_module_names or _in_environment(file))


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__).partition(".")[0]


def _in_environment(file: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(file.split(os.sep))


def _written(kind: type) -> list[Any]:
    """Return the methods and attributes that a class has of its own, without what Python adds."""
    return [
        each
        for name, each in vars(kind).items()
        if isinstance(each, FunctionType) or not (name.startswith("__") or name == "_abc_impl")
    ]


def _names(code: CodeType) -> list[str]:
    """Return the names that code, and code in it, may look up among the globals."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
