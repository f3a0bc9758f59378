"""The layers import only from those above them, and importing pebbling brings in no framework."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pebbling

ROOT = Path(pebbling.__file__).parent

# Each layer and those it may import from.
ABOVE = {
    "errors": set(),
    "units": set(),
    "documents": {"errors", "units"},
    "refusal": {"errors"},
    "logs": set(),
    "signature": set(),
    "tree": {"errors"},
    "chain": {"errors", "units"},
    "graph": {"errors", "units", "documents"},
    "store": {"errors", "units", "tree"},
    "budget": {"errors", "units", "chain", "store"},
    "drive": {"errors", "logs", "units", "signature", "tree", "chain", "store", "budget"},
    "engine": {"errors", "units", "signature", "refusal", "tree", "chain", "store", "budget", "drive"},
    "loops": {"errors", "units", "signature", "refusal", "tree", "chain", "store", "budget", "drive", "engine"},
    "numpy": {"refusal", "engine", "loops", "source"},
    "source": {"peaks", "errors", "units", "refusal", "tree", "chain", "store", "budget", "drive", "engine", "loops"},
    "tape": {"errors", "units", "refusal", "tree", "chain", "store", "budget", "drive", "engine", "loops"},
    "peaks": {"units"},
    "torch": {
        "errors",
        "logs",
        "units",
        "signature",
        "refusal",
        "tree",
        "chain",
        "graph",
        "store",
        "budget",
        "drive",
        "engine",
        "loops",
        "peaks",
    },
    "jax": {
        "errors",
        "units",
        "signature",
        "refusal",
        "tree",
        "chain",
        "graph",
        "store",
        "budget",
        "drive",
        "engine",
        "loops",
        "source",
        "peaks",
    },
    "testing": {"units", "peaks", "torch"},
    "pytest_plugin": {"units"},
    "adapters": {"errors", "units", "tree", "chain", "store", "budget", "drive", "loops", "torch", "jax"},
    "show": {"errors", "units", "tree", "chain", "graph", "store", "drive"},
    "demo": {"errors", "units", "tree", "chain", "store", "budget", "drive", "engine", "loops", "numpy", "show"},
    "cli": {
        "__version__",
        "documents",
        "errors",
        "units",
        "chain",
        "graph",
        "store",
        "drive",
        "peaks",
        "show",
        "source",
        "demo",
        "torch",
    },
    "__main__": {"cli"},
}
FRAMEWORKS = ("torch", "jax", "autograd", "h5py", "blosc2", "numba", "matplotlib", "rich", "scipy", "mpi4py")


def _layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """The layers that a file imports from."""
    found = set()
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            if node.module:
                found.add((*base, *node.module.split("."))[0])
            elif base:
                found.add(base[0])
            else:
                found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "pebbling":
            found.add(node.module.split(".")[1] if "." in node.module else "__init__")
    return found


FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards_only(path: Path) -> None:
    layer = _layer(path)
    assert _imports(path) - {layer} <= ABOVE[layer]


def test_modules_of_later_layers_are_named_in_the_table_of_frameworks_alone() -> None:
    """A module that is named in a string would go past the test above."""
    named = {
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
        # With two arguments, or a plain name, it is a module of the package itself or of somebody else's.
        if len(node.args) == 1 and not isinstance(node.args[0], ast.Constant)
    }
    assert named == {"loops/frameworks.py", "store/extra.py", "cli.py"}


def test_every_layer_is_known() -> None:
    assert {_layer(path) for path in FILES} <= set(ABOVE)


def test_importing_pebbling_loads_no_framework_and_is_quick(tmp_path: Path) -> None:
    """The bytecode is cached, as it is where a package is installed, whatever the environment of the tests says."""
    program = (
        "import time, sys, numpy\n"
        "begun = time.process_time()\n"
        "import pebbling\n"
        "seconds = time.process_time() - begun\n"
        f"print(seconds, *[name for name in {FRAMEWORKS} if name in sys.modules])"
    )
    cached = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    cached["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    command = [sys.executable, "-c", program]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=cached).stdout.split() for _ in range(6)
    ]
    assert all(run[1:] == [] for run in runs)
    assert min(float(run[0]) for run in runs) < 0.15
