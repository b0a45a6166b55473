"""The rules of the layers: imports go downwards only, and heavy packages are imported where they belong."""

from __future__ import annotations

import ast
import configparser
import graphlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import REPOSITORY

import mpi_ustat

ROOT = Path(mpi_ustat.__file__).parent
PACKAGE = ROOT.name

LAYERS = {
    "pure numbers and options": (
        "errors wording numerics user kernels schemes inference points.rows estimation.config "
        "learning.losses learning.objectives learning.user_objectives paper.theory paper.models"
    ),
    "ranks and files": "mpi storage",
    "drivers": (
        "complete influence scores estimation testing learning planning points paper boosters torch "
        "inference.error_bars inference.pilots user.code_digest"
    ),
    "application": "api app plots paper.experiments paper.experiments_coverage paper.experiments_learning __main__",
}
"""Which rooms and modules are in which layer, the lowest first; a module that is named counts more than its room."""
LAYER_NAMES = tuple(LAYERS)

_IMPORTER = f"{PACKAGE}.user.importing"
"""Has to know where a user's modules are."""


@dataclass(frozen=True)
class Import:
    """One import of one module, where it stands."""

    importer: str
    imported: str
    line: int
    lazy: bool
    """Inside a function, so that it happens when it is needed."""
    typing_only: bool
    """Under ``if TYPE_CHECKING``, so that it never happens."""

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer(module: str) -> int:
    """Return the layer of a module of the package, 0 at the bottom."""
    named = {name: number for number, names in enumerate(LAYERS.values()) for name in names.split()}
    _, _, name = module.partition(".")
    if not name:
        return len(LAYERS) - 1  # the package's face: it offers the drivers, and what is made of them
    while name and name not in named:
        name = name.rpartition(".")[0]
    return named.get(name, -1)


def inside(name: str, *modules: str) -> bool:
    """Return whether `name` is one of `modules` or inside one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def imports_of(module: str) -> Iterator[Import]:
    """Yield what the import statements of a module import; ``from a import b`` imports a.b if that is a module."""
    path = FILES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            longer = f"{base}.{alias.name}"
            yield longer if longer in FILES or not inside(base, PACKAGE) else base

    def visit(node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (Import(module, name, node.lineno, lazy, typing_only) for name in dict.fromkeys(names(node)))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        never = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy, typing_only or child in never)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False, False)


IMPORTS = [found for module in FILES for found in imports_of(module)]


def list_of(violations: list[Import]) -> str:
    return "; ".join(map(str, violations))


def test_the_package_was_found() -> None:
    assert {PACKAGE, f"{PACKAGE}.errors", f"{PACKAGE}.mpi.runtime"} <= set(FILES)
    assert any(found.imported == f"{PACKAGE}.errors" for found in IMPORTS)


def test_every_module_is_in_a_layer() -> None:
    assert [module for module in FILES if layer(module) < 0] == []


def test_imports_go_downwards_only() -> None:
    upwards = [
        f"{found} ({LAYER_NAMES[layer(found.importer)]} from {LAYER_NAMES[layer(found.imported)]})"
        for found in IMPORTS
        # The face itself has nothing but the version, and what it offers when it is asked.
        if inside(found.imported, PACKAGE)
        and found.imported != PACKAGE
        and layer(found.imported) > layer(found.importer)
    ]
    assert not upwards, "; ".join(upwards)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in FILES if module != PACKAGE}
    for found in IMPORTS:
        if found.imported in graph and found.importer in graph and not found.typing_only:
            graph[found.importer].add(found.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("mpi4py", ("mpi",)),
        ("h5py", ("storage",)),
        ("matplotlib", ("plots",)),
        ("sklearn", ("learning.ranker",)),
        ("xgboost", ("boosters",)),
        ("torch", ("torch",)),
    ],
)
def test_a_package_is_imported_only_where_it_belongs(package: str, homes: tuple[str, ...]) -> None:
    allowed = tuple(f"{PACKAGE}.{home}" for home in homes)

    strays = [
        found
        for found in IMPORTS
        if inside(found.imported, package) and not found.typing_only and not inside(found.importer, *allowed)
    ]
    assert not strays, list_of(strays)


@pytest.mark.parametrize("package", ["mpi4py", "scipy.stats", "tqdm", "xgboost"])
def test_a_package_is_never_imported_before_it_is_needed(package: str) -> None:
    eager = [found for found in IMPORTS if inside(found.imported, package) and not found.lazy and not found.typing_only]
    assert not eager, list_of(eager)


def test_pure_modules_open_no_files() -> None:
    forbidden = ("h5py", "io", "os", "pathlib", "shutil", "tempfile")
    pure = [found for found in IMPORTS if layer(found.importer) == 0]
    strays = [found for found in pure if inside(found.imported, *forbidden) and found.importer != _IMPORTER]
    assert not strays, list_of(strays)


OF_USERS = ("plot", "data", "sklearn", "pandas", "parquet", "boosters", "torch")
"""The extras that users install, of which the package imports something."""


def test_every_imported_package_is_declared() -> None:
    config = configparser.ConfigParser()
    assert config.read(REPOSITORY / "setup.cfg"), "the tests run from a checkout or the source distribution"
    declared = config["options"]["install_requires"]
    declared += "".join(config["options.extras_require"][extra] for extra in OF_USERS)
    distributions = set(re.findall(r"^\s*([\w-]+)>=", declared, flags=re.MULTILINE))
    known = {"scikit-learn": "sklearn"}
    allowed = {known.get(name, name) for name in distributions} | set(sys.stdlib_module_names) | {PACKAGE}
    unknown = [found for found in IMPORTS if found.imported.partition(".")[0] not in allowed]
    assert not unknown, list_of(unknown)


ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("scripts/*/*.md")]
TEXTS = {
    str(path.relative_to(top)): path
    for top, paths in ((REPOSITORY, PAGES), (ROOT.parent, FILES.values()))
    for path in paths
}
A_PATH = re.compile(rf"(?<![\w./-])(?:tests|scripts|docs|{PACKAGE}|{'|'.join(ROOMS)})/[\w/.-]*\w(?![\w*…-])")
A_NAME = re.compile(rf"(?<=`)(?:{PACKAGE}|{'|'.join(ROOMS)})(?:\.[A-Za-z_]\w*)+|\b{PACKAGE}(?:\.[A-Za-z_]\w*)+")


def has_name(name: str) -> bool:
    """Return whether a dotted name, from the package or from one of its rooms, is a module or something in one."""
    name = name if inside(name, PACKAGE) else f"{PACKAGE}.{name}"
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return is_defined(name)
    return True


def is_defined(name: str) -> bool:
    """Return whether a module or something in it is there, also where the module needs a package that isn't."""
    module, _, last = name.rpartition(".")
    body = ast.parse(FILES[module].read_text(encoding="utf-8")).body if module in FILES else []
    return name in FILES or last in {getattr(node, "name", None) for node in body}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_files_and_names_that_a_text_tells_of_are_there(text: Path) -> None:
    content = text.read_text(encoding="utf-8")
    gone = [
        path
        for path in A_PATH.findall(content)
        if not any((top / path).exists() for top in (REPOSITORY, ROOT.parent, ROOT))
    ]
    gone += [name for name in A_NAME.findall(content) if not has_name(name)]
    assert not gone


def test_every_room_is_in_the_architecture() -> None:
    table = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\|[^|]*\| `(\w+)` \|", table, flags=re.MULTILINE)) == ROOMS


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("mpi4py", "numpy", "scipy", "h5py", "matplotlib", "sklearn", "river", "xgboost", "lightgbm", "torch")
    code = f"import sys, mpi_ustat; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(("module", "package"), [("torch", "torch")])
def test_a_module_without_the_package_it_is_for_says_what_to_install(module: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import {PACKAGE}.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"pip install '{PACKAGE}[{module}]'" in done.stderr.splitlines()[-1]
