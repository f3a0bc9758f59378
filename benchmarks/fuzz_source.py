"""Random programs with checkpointed loops against the same programs without: same, refused by reason, or wrong.

    python benchmarks/fuzz_source.py --seconds 1200 --first 0

The programs are those of ``tests/source/random_programs.py``. What a plain run raises, the checkpointed one raises as
well. A program counts as ``same`` if value and gradients agree to the last bit, as ``rounding`` if they agree to
twelve digits, as ``refused`` if an error of ours says why, as ``only plain refused`` if the plain one is refused by the
NumPy engine and has no gradient to compare with, and as ``wrong`` otherwise. What differs is written to ``--out``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "source")]

from random_programs import Maker, compiled  # noqa: E402
from test_random_programs import OPTIONS, close, equal, outcome  # noqa: E402

import pebbling as pb  # noqa: E402
from pebbling.source import checkpoint  # noqa: E402


def judged(source: str, name: str, options: dict[str, object]) -> tuple[str, str]:
    """How a program fares, and why."""
    function = compiled(source, name, np)
    plain = outcome(function)
    try:
        found = outcome(checkpoint(**options)(function))
    except pb.SourceError as error:
        found = error
    if equal(plain, found):
        return "same", "raises" if isinstance(plain, Exception) else "gives"
    if isinstance(found, pb.PebblingError):
        return "refused", reason(found)
    if isinstance(plain, pb.SourceError):
        return "only plain refused", reason(plain)
    if close(plain, found):
        return "rounding", ""
    return "wrong", f"{plain!r} became {found!r}"


def reason(error: Exception) -> str:
    """A refusal without the names of this program."""
    text = re.sub(r"^\S+?:\d+: ", "", str(error).partition("\n")[0] if ":" in str(error) else str(error))
    text = re.sub(r"<random[^>]*>:\d+:?", "", text)
    text = re.sub(r"'[^']*'|\b\d+\b|\([^)]*\)|\[[^\]]*\]", "…", text)
    text = re.sub(r"\b(u|v|w|t|o|d|xs|x|a|b|c|g|h|q|k|s|z|e|keep|out|tick|box|total|n|rng|normal|self)\b", "X", text)
    return f"{type(error).__name__}: {re.sub(r'X(, X)+', 'X', text).strip()[:110]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="a folder for programs that differ")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    begin, seed = time.perf_counter(), given.first
    while time.perf_counter() - begin < given.seconds:
        source, options = Maker(Random(seed)).source(), OPTIONS[seed % len(OPTIONS)]
        kind, why = judged(source, f"<random program {seed}>", options)
        counts[kind] += 1
        if kind == "refused":
            reasons[why] += 1
        elif kind in ("rounding", "wrong"):
            print(f"seed {seed} {options} {kind}: {why}", file=sys.stderr, flush=True)
            if given.out is not None:
                given.out.mkdir(parents=True, exist_ok=True)
                (given.out / f"{seed}.py").write_text(f"# {options} {kind}\n{source}")
        seed += 1
    print(f"`{' '.join(['python', *sys.argv])}`, Python {sys.version.split()[0]}, NumPy {np.__version__}\n")
    kinds = ("same", "refused", "only plain refused", "rounding", "wrong")
    print(f"| programs | {' | '.join(kinds)} |\n{'|---' * 6}|")
    print(f"| {seed - given.first} | {' | '.join(str(counts[kind]) for kind in kinds)} |\n")
    print("| refused because | programs |\n|---|---|")
    for why, count in reasons.most_common(25):
        print(f"| {why.replace('|', ' ')} | {count} |")
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(25))
    print(f"| other reasons | {rest} |")


if __name__ == "__main__":
    main()
