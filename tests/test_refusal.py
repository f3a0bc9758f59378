"""A refusal reaches the user, whatever the user's code does with exceptions."""

from __future__ import annotations

import contextlib
import sys
import warnings

import numpy as np
import pytest

from pebbling.errors import ReplayError, SourceError
from pebbling.refusal import Refused, Region, refused, withdraw
from pebbling.tree.reach import catches


class Traced:
    """A value that NumPy asks for a number, and that refuses to be one."""

    def __float__(self):
        raise refused(SourceError("file.py:1: no"))

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self


def caught():
    with contextlib.suppress(Exception):
        float(Traced())
    return 1


def caught_by_all_means():
    try:
        float(Traced())
    except:  # noqa: E722
        return 2
    return 1


def made_another_by_numpy():
    x = np.ones(4)
    with pytest.raises(ValueError, match="sequence"):
        x[0] = Traced()
    return x


def taken_for_another():
    try:
        float(Traced())
    except BaseException as error:
        raise KeyError("mine") from error


def interrupted():
    try:
        float(Traced())
    except BaseException:
        raise KeyboardInterrupt from None


@pytest.mark.parametrize("code", [caught, caught_by_all_means, made_another_by_numpy, taken_for_another])
@pytest.mark.parametrize("depth", [1, 3])
def test_it_comes_out_of_every_region_as_itself(code, depth):
    def inside(depth):
        if not depth:
            return code()
        with contextlib.suppress(Exception), Region():
            inside(depth - 1)
        return "swallowed"

    with pytest.raises(SourceError, match=r"file.py:1: no") as found, Region():
        inside(depth)
    assert not isinstance(found.value, Refused)


def test_outside_of_regions_it_is_raised_at_once():
    with pytest.raises(SourceError, match="no"):
        float(Traced())


def test_the_traceback_leads_to_the_line():
    with pytest.raises(SourceError) as found, Region():
        float(Traced())
    assert any(entry.name == "__float__" for entry in found.traceback)


def test_what_has_been_dealt_with_is_forgotten():
    with Region():
        try:
            raise refused(SourceError("begin anew"))
        except Refused as carrier:
            withdraw(carrier.error)


def test_errors_of_the_user_and_interrupts_pass():
    with pytest.raises(KeyError), Region():
        raise KeyError("mine")
    with pytest.raises(KeyboardInterrupt), Region():
        interrupted()


def test_an_error_that_a_region_inside_raises_plainly_is_refused_around_it():
    def inner():
        try:
            with Region():
                raise ReplayError("another result")
        except Exception:
            return "swallowed"

    with pytest.raises(ReplayError, match="another"), Region():
        inner()


def locked_array():
    array = np.ones(3)
    array.flags.writeable = False
    return array


def writes(array):
    try:
        array[0] = 2.0
    except ValueError:
        return "swallowed"
    return "written"


def words(error, frame):
    return SourceError(f"{frame.f_code.co_name}: {error}")


@pytest.mark.parametrize("other", [None, lambda frame, event, arg: None], ids=["alone", "with another tracer"])
def test_a_write_into_a_locked_array_is_refused_though_the_code_catches_errors(other):
    before = sys.gettrace()
    sys.settrace(other)
    try:
        with pytest.raises(SourceError, match="writes: assignment"), Region(words, watch=True):
            writes(locked_array())
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)


def test_a_write_that_is_not_caught_is_refused_without_watching():
    with pytest.raises(SourceError, match="test_a_write"), Region(words):
        locked_array()[:] = 1


def test_read_only_arrays_of_the_user_are_the_users_affair():
    with Region(lambda error, frame: None, watch=True):
        assert writes(locked_array()) == "swallowed"
    with pytest.raises(ValueError, match="read-only"), Region(lambda error, frame: None):
        locked_array()[:] = 1


def test_a_region_around_sees_what_one_inside_watches():
    def inner():
        with contextlib.suppress(Exception), Region(words, watch=True):
            writes(locked_array())

    with pytest.raises(SourceError, match="read-only"), Region(words, watch=True):
        inner()
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


def test_code_that_handles_exceptions_is_known():
    def plain(x):
        return [y + 1 for y in x]

    def inside(x):
        return lambda: writes(x)

    def guarded(x):
        with warnings.catch_warnings():
            return x

    assert catches(writes.__code__)
    assert catches(guarded.__code__)
    assert not catches(plain.__code__)
    assert not catches(inside.__code__)
