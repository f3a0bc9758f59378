"""Random programs: with checkpointed loops they give what they give without, to the last bit, or are refused.

The programs alias, write in place, append, break, raise and nest at random. What a plain run raises,
the checkpointed one raises as well; it may refuse with ``SourceError``, but never differ. One thing is
tolerated: nested loops over a list of arrays that are also used by name, one of which they write into or bind
anew, may have cotangents added up in another order, and so to another last bit.
"""

from __future__ import annotations

import linecache
from collections import Counter
from random import Random

import numpy as np
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from random_programs import Maker, compiled, reset

import pebbling as pb
from pebbling.source import checkpoint

X, A, B = (Random(seed).sample(range(-9, 10), 4) for seed in (1, 2, 3))
TOLERATED = "for u in [a * 2, a, v]:"
OPTIONS = [{"slots": 1}, {"slots": 2}, {"slots": 3}, {"slots": 50}, {"memory": "64MiB"}]


def outcome(function):
    reset()
    x, a, b = (np.array(one) / 10.0 for one in (X, A, B))
    with np.errstate(all="ignore"):
        try:
            value, grads = pb.value_and_grad(function, (0, 1, 2))(x, a, np.stack([b, b * 0.5]))
        except Exception as error:
            return error
    return [value, *grads]


def equal(one, two):
    if isinstance(one, Exception) or isinstance(two, Exception):
        return type(one) is type(two) and str(one) == str(two)
    return all(np.array_equal(first, second, equal_nan=True) for first, second in zip(one, two))


def close(one, two):
    if isinstance(one, Exception) or isinstance(two, Exception):
        return False
    return all(np.allclose(first, second, rtol=1e-12, atol=1e-13) for first, second in zip(one, two))


def judged(source, options):
    """How a program fares: the same, refused, or what went wrong."""
    name = f"<random program {hash(source)}>"
    try:
        function = compiled(source, name, np)
        plain = outcome(function)
        try:
            found = outcome(checkpoint(**options)(function))
        except pb.SourceError as error:
            found = error
    finally:
        linecache.cache.pop(name, None)
    if equal(plain, found):
        return "same"
    if close(plain, found) and TOLERATED in source:
        return "rounding"
    if isinstance(found, pb.SourceError) or (isinstance(plain, pb.SourceError) and isinstance(found, pb.PebblingError)):
        return "refused"
    return f"{plain!r} became {found!r}"


@settings(max_examples=150, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(st.randoms(use_true_random=False), st.sampled_from(OPTIONS))
def test_a_random_program_is_right_or_refused(random, options):
    source = Maker(random).source()
    note(source)
    assert judged(source, options) in ("same", "refused", "rounding")


def test_most_random_programs_are_not_refused():
    fared = Counter(judged(Maker(Random(seed)).source(), OPTIONS[seed % 5]) for seed in range(60))
    assert set(fared) <= {"same", "refused"}
    assert fared["same"] >= 40
