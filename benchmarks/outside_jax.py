"""JAX's tests of its loops, and equinox's, with the loops in them replaced by pebbling's.

``jax``: ``tests/lax_control_flow_test.py`` of the folder, where ``jax.lax.scan``, ``while_loop`` and ``fori_loop`` are
those of ``pebbling.jax``; JAX's own settings (strict promotion of types and ranks) hold. ``equinox``:
``tests/test_while_loop.py`` and ``test_scan.py``, where ``equinox.internal.while_loop`` and ``scan`` are those of
``pebbling.jax.equinox``. The checkouts should be of the installed versions. Nothing else in the files is changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from outside import Outcome, reason_of

SECONDS = 7200

STANDING_IN = """
import types, jax
from jax import lax
import pebbling.jax as pj

class _Other(types.ModuleType):
    def __init__(self, of, **names):
        super().__init__(of.__name__)
        self.__dict__.update(names, _of=of)
    def __getattr__(self, name):
        return getattr(self.__dict__["_of"], name)

def _scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    return pj.scan(f, init, xs, length, reverse, unroll=unroll)

lax = _Other(lax, scan=_scan, while_loop=pj.while_loop, fori_loop=pj.fori_loop)
jax = _Other(jax, lax=lax)
"""

REPLACING = """
import types
import equinox.internal as eqxi
import pebbling.jax.equinox as ours

ours.eqxi = types.SimpleNamespace(while_loop=eqxi.while_loop, scan=eqxi.scan)
eqxi.while_loop, eqxi.scan = ours.while_loop, ours.scan
"""

# Tests that hold the library to its own inside or words, by a part of their name or of what they say.
INSIDE = {
    "jax": {
        r"does not match|is not while|KeyError: 'jaxpr'|StopIteration|744 != |concrete_error": (
            "compares the words of a message, or looks at JAX's own primitives"
        ),
        r"testCaching|Compilation detected": "counts traces and compilations outside of jit",
        r"ValueError not raised": "expects that a while loop can't be differentiated",
    },
    "equinox": {
        r"test_backward_checkpointed": "holds the replays to the order of equinox's own placement",
        r"test_(symbolic_zero|nondifferentiable_body2|body_fun_grads|trivial_vjp)": (
            "reads what equinox's own derivative rule prints"
        ),
    },
}
REFUSED = r"bounds of fori_loop must be integers|has the effects"


def jax(folder: Path) -> Iterator[Outcome]:
    """JAX's tests of control flow."""
    text = (folder / "tests" / "lax_control_flow_test.py").read_text()
    text = text.replace("\nimport jax\n", "\nfrom standing_in import jax\n")
    text = text.replace("\nfrom jax import lax\n", "\nfrom standing_in import lax\n")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "standing_in.py").write_text(STANDING_IN)
        (Path(place) / "control_flow_test.py").write_text(text)
        yield from _run(Path(place), ["control_flow_test.py"], "jax")


def equinox(folder: Path) -> Iterator[Outcome]:
    """Equinox's tests of its loops, but for those of their speed."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "replacing.py").write_text(REPLACING)
        (Path(place) / "tests").symlink_to(folder / "tests")
        files = ["tests/test_while_loop.py", "tests/test_scan.py"]
        yield from _run(Path(place), ["-p", "replacing", "-k", "not speed", *files], "equinox")


def _run(place: Path, arguments: list[str], name: str) -> Iterator[Outcome]:
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--junitxml=found.xml"]
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([*command, *arguments], cwd=place, env=environment, timeout=SECONDS, stdout=subprocess.DEVNULL)
    for case in ElementTree.parse(place / "found.xml").iter("testcase"):
        yield _outcome(case, name)


def _outcome(case: ElementTree.Element, name: str) -> Outcome:
    title = case.get("name", "")
    told = [case.find(kind) for kind in ("skipped", "error", "failure")]
    skipped, *failed = told
    if skipped is not None:
        return Outcome(title, "not for us", "skipped by its own file")
    found = next((f for f in failed if f is not None), None)
    if found is None:
        return Outcome(title, "right")
    message = found.get("message", "") or ""
    short = re.split(r"\[", title)[0]
    for pattern, reason in INSIDE[name].items():
        if re.search(pattern, title + message + (found.text or "")[-3000:]):
            return Outcome(short, "not for us", reason)
    if re.search(REFUSED, message):
        return Outcome(short, "refused", reason_of(AssertionError(message)))
    verdict = "wrong" if "Not equal" in message or "not close" in message else "raw"
    return Outcome(short, verdict, reason_of(AssertionError(message)))
