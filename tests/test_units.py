"""Sizes and times as people write them."""

from __future__ import annotations

import pytest

from pebbling.units import format_bytes, format_seconds, parse_bandwidth, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64MiB", 64 * 2**20),
        ("2GB", 2 * 10**9),
        ("1.5 kB", 1500),
        (4096, 4096),
        ("17", 17),
        ("4tb", 4 * 10**12),
        ("0", 0),
    ],
)
def test_bytes(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("5ms", 0.005), ("2 h", 7200.0), (0.25, 0.25), ("3us", 3e-6), ("1e-3s", 1e-3)]
)
def test_seconds(text, number):
    assert parse_seconds(text) == pytest.approx(number)


def test_bandwidth():
    assert parse_bandwidth("2GB/s") == 2e9
    assert parse_bandwidth("500 MiB/s") == 500 * 2**20


@pytest.mark.parametrize("bad", ["", "GB", "12 parsecs", "-3GB", -1, float("nan"), float("inf"), True, "1GB2", None])
def test_what_is_no_size_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="expected bytes such as"):
        parse_bytes(bad)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1 KiB"),
        (10**9, "954 MiB"),
        (5 * 2**40, "5 TiB"),
        (5000 * 2**40, "5,000 TiB"),
    ],
)
def test_bytes_are_printed_short(number, text):
    assert format_bytes(number) == text


def test_seconds_are_printed_short():
    assert [format_seconds(s) for s in (0, 3e-9, 2e-5, 0.5, 90, 7200, 10**6)] == [
        "0 s",
        "3 ns",
        "20 µs",
        "500 ms",
        "1.5 min",
        "2 h",
        "11.6 d",
    ]


@pytest.mark.parametrize("amount", [0.5, 1e-9, "0.25", "0.0001 kB"])
def test_a_share_is_not_a_size(amount):
    with pytest.raises(ValueError, match="less than a byte: sizes and budgets are in bytes"):
        parse_bytes(amount)
