"""What tells a user's function from what it was before: a digest of its source, or of its code where there is none."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np


def code_digest(function: Any, name: str) -> str:
    """Return a digest of a user's function or object, in hexadecimal.

    One that is named as ``module:name`` is known by the source of its module, and of those in the same folder that it
    uses; any other by its code with constants, defaults and what it refers to, which other versions of Python compile
    to something else.

    Parameters
    ----------
    function : callable or object
    name : str
        As the user named it, or anything without a colon.
    """
    path, colon, _ = name.partition(":")
    module = sys.modules.get(path) if colon else None
    found = b"".join(_sources(module)) if module is not None else b""
    return hashlib.sha256(found or "\n".join(_described(function, {})).encode()).hexdigest()[:16]


@functools.cache  # of the moment when it is first asked for: the file may change while it runs
def _sources(module: ModuleType) -> tuple[bytes, ...]:
    """Return the digests of a module's file and of those in its folder that it uses, sorted."""
    folder = os.path.dirname(getattr(module, "__file__", None) or "")
    files: dict[str, bytes] = {}
    waiting = [module]
    while waiting and folder:
        file = getattr(waiting[-1], "__file__", None)
        names = vars(waiting.pop())
        if file is None or file in files or os.path.dirname(file) != folder or not os.path.isfile(file):
            continue
        with open(file, "rb") as stream:
            files[file] = hashlib.sha256(stream.read()).digest()
        for value in names.values():
            if isinstance(value, FunctionType | type):
                value = sys.modules.get(value.__module__)
            if isinstance(value, ModuleType):
                waiting.append(value)
    return tuple(sorted(files.values()))


def _described(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield what makes a value what it is, as far as that doesn't change from one process to another."""
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        yield repr(value)
        return
    if id(value) in seen:
        return
    seen[id(value)] = value  # kept, or another value might get its number
    parts: list[Any] = []
    if isinstance(value, CodeType):
        yield value.co_code.hex()
        parts = [value.co_names, value.co_consts]
    elif isinstance(value, FunctionType):
        used = [value.__globals__.get(name) for name in _names(value.__code__)]
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, vars(value)]
        parts += [each for each in used if not isinstance(each, ModuleType)]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, dict):
        parts = [each for item in value.items() for each in item]
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        kind = value if isinstance(value, type) else type(value)
        yield f"{kind.__module__}.{kind.__qualname__} {getattr(value, '__name__', '')}"
        parts = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
        parts += [] if isinstance(value, type) else [getattr(value, "__dict__", None)]
    for part in parts:
        yield from _described(part, seen)


def _names(code: CodeType) -> list[str]:
    """Return the names that code, and code in it, may look up among the globals."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
