"""The recipes of packagers: each is read as far as that goes without its tool, and agrees with the package."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

import mpi_ustat

yaml = pytest.importorskip("yaml")

PACKAGING = REPOSITORY / "scripts" / "packaging"
SPACK = PACKAGING / "spack" / "py-mpi-ustat" / "package.py"
(EASYBUILD,) = (PACKAGING / "easybuild").glob("*.eb")
CONDA = PACKAGING / "conda" / "meta.yaml"
APPTAINER = sorted((PACKAGING / "apptainer").glob("*.def"))


@cache
def setup() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    assert config.read(REPOSITORY / "setup.cfg")
    return config


def lowest(text: str) -> dict[str, str]:
    """Return the lowest version of each package of a list as in setup.cfg."""
    return dict(re.findall(r"^\s*([\w-]+)\s*>=\s*([\d.]+)$", text, re.MULTILINE))


def required() -> dict[str, str]:
    return lowest(setup()["options"]["install_requires"])


def extra(name: str) -> dict[str, str]:
    return lowest(setup()["options.extras_require"][name])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def calls(function: str, tree: ast.AST) -> list[ast.Call]:
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", None) == function
    ]


def literals(path: Path) -> dict[str, Any]:
    """Return what a file of assignments assigns; anything else in it fails."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        assert isinstance(node, ast.Assign), ast.unparse(node)
        (target,) = node.targets
        found[ast.unparse(target)] = ast.literal_eval(node.value)
    return found


def test_spack_s_recipe_has_the_version_and_the_dependencies() -> None:
    tree = ast.parse(SPACK.read_text(encoding="utf-8"))
    assert [ast.literal_eval(call.args[0]) for call in calls("version", tree)] == [mpi_ustat.__version__]
    assert f"mpi_ustat-{mpi_ustat.__version__}.tar.gz" in SPACK.read_text(encoding="utf-8")
    needed, optional = {}, {}
    for call in calls("depends_on", tree):
        name, _, version = ast.literal_eval(call.args[0]).rstrip(":").partition("@")
        when = next((ast.literal_eval(word.value) for word in call.keywords if word.arg == "when"), None)
        (needed if when is None else optional)[name.removeprefix("py-")] = (when, version)
    assert {name: version for name, (_, version) in needed.items() if name not in ("python", "setuptools", "mpi")} == (
        required()
    )
    assert ">=" + needed["python"][1] == setup()["options"]["python_requires"]
    assert f"setuptools>={needed['setuptools'][1]}" in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for name, (when, version) in optional.items():
        assert extra(when.removeprefix("+")) == {name: version}
    assert {ast.literal_eval(call.args[0]) for call in calls("variant", tree)} == {
        when.removeprefix("+") for when, _ in optional.values()
    }


def test_easybuild_s_recipe_brings_enough_of_every_dependency() -> None:
    recipe = literals(EASYBUILD)
    assert recipe["version"] == mpi_ustat.__version__
    toolchain = f"{recipe['toolchain']['name']}-{recipe['toolchain']['version']}"
    assert EASYBUILD.name == f"{recipe['name']}-{recipe['version']}-{toolchain}.eb"
    brought = dict(recipe["dependencies"])
    assert numbers(brought["Python"]) >= numbers(setup()["options"]["python_requires"].removeprefix(">="))
    inside = {"numpy": "SciPy-bundle", "scipy": "SciPy-bundle", "threadpoolctl": "scikit-learn"}
    for name, version in required().items():
        assert inside.get(name, name) in brought
        assert name in inside or numbers(brought[name]) >= numbers(version)
    assert recipe["sanity_check_paths"]["files"] == ["bin/mpi-ustat"]


def test_conda_s_recipe_has_the_version_and_the_dependencies() -> None:
    text = CONDA.read_text(encoding="utf-8")
    (version,) = re.findall(r'{% set version = "([\d.]+)" %}', text)
    rendered = re.sub(r"{%.*?%}", "", text).replace("{{ version }}", version).replace("{{ PYTHON }}", "python")
    assert "{{" not in rendered
    recipe = yaml.safe_load(rendered)
    assert recipe["package"] == {"name": "mpi_ustat", "version": mpi_ustat.__version__}
    assert (CONDA.parent / recipe["source"]["path"]).resolve() == REPOSITORY
    run = lowest("\n".join(recipe["requirements"]["run"]))
    assert ">=" + run.pop("python") == setup()["options"]["python_requires"]
    assert run == required()
    assert recipe["build"]["entry_points"] == [setup()["options.entry_points"]["console_scripts"].strip()]
    assert (REPOSITORY / recipe["about"]["license_file"]).is_file()
    assert recipe["about"]["license"] == setup()["metadata"]["license_expression"]
    assert recipe["about"]["summary"] == setup()["metadata"]["description"]


@pytest.mark.parametrize("path", APPTAINER, ids=lambda path: path.stem)
def test_apptainer_s_definitions_are_whole(path: Path) -> None:
    head, *parts = re.split(r"^%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    keys = dict(re.findall(r"^(\w+): (\S+)$", head, re.MULTILINE))
    assert keys.keys() == {"Bootstrap", "From"}
    sections = dict(part.split("\n", 1) for part in parts)
    assert {"files", "post", "environment", "test", "runscript", "labels"} == sections.keys()
    for name in ("post", "environment", "test", "runscript"):
        assert subprocess.run(["bash", "-n"], input=sections[name], text=True, check=False).returncode == 0
    assert f"org.opencontainers.image.version {mpi_ustat.__version__}\n" in sections["labels"]
    for extras in re.findall(r"/opt/mpi_ustat\[([\w,]+)\]", sections["post"]):
        assert set(extras.split(",")) <= set(setup()["options.extras_require"])
    # The wheel of MPICH is in the image that brings its own MPI, and never in the one for the host's.
    assert ("mpich" in re.findall(r"\w+", "".join(re.findall(r"\[(.*?)\]", sections["post"])))) == (
        path.stem == "wheel"
    )


def test_reframe_s_check_is_python_and_asks_for_one_number_of_all_ranks() -> None:
    tree = ast.parse((PACKAGING / "reframe" / "check.py").read_text(encoding="utf-8"))
    (ranks,) = (ast.literal_eval(call.args[0]) for call in calls("parameter", tree))
    assert ranks == [1, 2, 4]


def test_citation_has_the_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == mpi_ustat.__version__
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{mpi_ustat.__version__}] – {citation['date-released']}\n" in changes
    assert citation["license"] == setup()["metadata"]["license_expression"]


def test_the_workflow_runs_scripts_that_are_there_with_extras_that_are_there() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    scripts = [word for run in runs for word in run.split() if word.startswith("scripts/")]
    assert "scripts/test.sh" in scripts
    assert all((REPOSITORY / script).is_file() for script in scripts)
    extras = {name for run in runs for names in re.findall(r"\.\[([\w,]+)\]", run) for name in names.split(",")}
    assert extras <= set(setup()["options.extras_require"])
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]["include"]
    assert {entry["mpi"] for entry in matrix} == {"mpich", "openmpi"}
    assert any(entry.get("options") == "--lowest" for entry in matrix)
