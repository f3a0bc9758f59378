"""What pyproject.toml promises is true: every extra brings something that the library imports, and `all` brings all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
# Where the name of a distribution is not the name that is imported; jaxlib is imported by jax.
IMPORTED = {"checkpoint-schedules": "checkpoint_schedules", "pyadjoint-ad": "pyadjoint", "jaxlib": "jax"}

# Users hand in its communicators (`comm=`); the library only calls their methods.
HANDED_IN = {"mpi4py"}


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[; ]", requirement)[0] for requirement in requirements}


def test_the_library_imports_what_each_extra_brings() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for extra, requirements in EXTRAS.items():
        for name in _names(requirements) - {"pebbling"} - HANDED_IN:
            module = IMPORTED.get(name, name)
            assert re.search(rf"(import|from) {module}\b|\"{module}", source), f"nothing imports {name} of [{extra}]"


def test_all_brings_every_extra() -> None:
    (whole,) = EXTRAS["all"]
    included = re.search(r"\[(.*)\]", whole)[1].split(",")
    brought = set().union(*(_names(EXTRAS[extra]) for extra in included))
    assert set().union(*map(_names, EXTRAS.values())) - {"pebbling"} == brought


def test_every_pinned_version_is_of_something_that_the_tests_install() -> None:
    pinned = (ROOT / "constraints-test.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[\w.\-]+==[\w.+]+", line) for line in pinned)
    names = {line.partition("==")[0].lower().replace("_", "-") for line in pinned}
    asked = _names((ROOT / "requirements-test.txt").read_text().splitlines()) - {"#", ""}
    assert {name.lower().replace("_", "-") for name in asked} - {"torch"} <= names


def test_the_conda_recipe_is_of_this_version_and_needs_what_the_wheel_needs() -> None:
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/pebbling/__init__.py").read_text())[1]
    assert f'version: "{version}"' in recipe
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    needs = {line.strip("- ").replace(" ", "") for line in run.splitlines()}
    assert needs == {f"python{PROJECT['project']['requires-python']}", *PROJECT["project"]["dependencies"]}
