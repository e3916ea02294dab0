"""Regions from text: what regions print is read back, and nothing else."""

from __future__ import annotations

import pytest

from offcut.app.fit.parse import parse_frame, parse_limits, parse_region
from offcut.errors import SettingsError
from offcut.regions import Ball, Box, Orthant, Polytope, Shell, Simplex


@pytest.mark.parametrize(
    "region",
    [
        Box(0, 1),
        Box([0, -2.5], [1, None], closed="left"),
        Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5) | Box([5, 0], [6, None]),
        ~(Box(0, 1) | Ball(3, 0.25)),
        Orthant([1, -1], 0.5, closed=False),
        Simplex(1),
        Shell([0, 0], 1, 2e-3 + 2),
        Polytope([[1, 1], [-1, 0]], [1, 0]),
    ],
    ids=repr,
)
def test_reads_what_regions_print(region):
    assert repr(parse_region(repr(region))) == repr(region)
    assert parse_region(f"  {region!r} ") == region


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("__import__('os').system('true')", "__import__"),
        ("Box(0, open('x'))", "open('x')"),
        ("Box(0, 1).__class__", "Box(0, 1).__class__"),
        ("Box(0, 2 ** 9)", "2 ** 9"),
        ("Box(0, [x for x in (1, 2)])", "[x for x in (1, 2)]"),
        ("Box(*[0, 1])", "*[0, 1]"),
        ("Box(**{'lower': 0})", "**{'lower': 0}"),
        ("Box(0, 1) + Box(2, 3)", "Box(0, 1) + Box(2, 3)"),
        ("Predicate(abs)", "Predicate(abs)"),
        ("Box(0, True and 1)", "True and 1"),
        ("3", "'3'"),
        ("lambda x: True", "lambda x: True"),
    ],
)
def test_anything_else_is_refused_and_shown(text, part):
    with pytest.raises(SettingsError) as error:
        parse_region(text)
    assert part in str(error.value)
    assert "for example Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)" in str(error.value)


@pytest.mark.parametrize("text", ["Box(0, 1", "", "Box(0 1)", "x\0", "(" * 300])
def test_text_that_is_no_expression(text):
    with pytest.raises(SettingsError, match="for example Box"):
        parse_region(text)


@pytest.mark.parametrize(
    "text", ["Box(3, 1)", "Ball([0, 0], -1)", "Box([0, 0], [1, 1, 1])", "Ball(radius=1, size=2)"]
)
def test_regions_that_cannot_be(text):
    with pytest.raises(SettingsError, match="cannot be"):
        parse_region(text)


def test_numbers_of_many_digits():
    """Refused with words, wherever a text has a number; an infinite limit only on its own side."""
    for digits in (400, 5000):
        many = "9" * digits
        with pytest.raises(SettingsError, match="the region"):
            parse_region(f"Box({many}, None)")
        with pytest.raises(SettingsError, match="--frame"):
            parse_frame(f"{many}x1", 3)
        with pytest.raises(SettingsError, match="nothing lies above"):
            parse_limits(many, "--lower", 1)
        with pytest.raises(SettingsError, match="nothing lies below"):
            parse_limits(f"-{many}", "--upper", 1)
        assert parse_limits(many, "--upper", 1) == parse_limits("inf", "--upper", 1) == [None]
    with pytest.raises(SettingsError, match="--frame"):
        parse_frame("²x1", 3)
