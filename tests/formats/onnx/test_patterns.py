"""Patterns of tokens find what Python's regular expressions find, in bounded time."""

from __future__ import annotations

import random
import re

import pytest

from graphc.errors import GraphError
from graphc.formats.onnx.patterns import Pattern

CHARACTERS = ["a", "b", r"\w", r"\W", r"\d", r"\s", ".", "[ab]", "[^a]", "[a-c]", r"\.", r"[^\n]"]
CHARACTERS += [" ", r"\n", "é", "[é-ü]", r"[\w-]"]
TIMES = ["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,1}", "{0}"]
LETTERS = "aabbc-. \n1é_\U0001f600\ud800"


def pattern_of(rng: random.Random) -> str:
    parts = [*CHARACTERS, r"\b", r"\B"]
    head, tail = (rng.choices(parts, k=rng.randint(0, 2)) for _ in range(2))
    repeated = rng.choice(["", rng.choice(CHARACTERS) + rng.choice(TIMES)])
    return "".join([*head, repeated, *tail])


@pytest.mark.parametrize("seed", range(4))
def test_they_find_what_regular_expressions_find(seed: int) -> None:
    """Of empty texts, of which \\B is a part in some versions of Python alone, there are none."""
    rng = random.Random(seed)
    for _ in range(400):
        text = pattern_of(rng)
        wanted, pattern = re.compile(text, re.ASCII), Pattern.read(text)
        given = [
            "".join(rng.choices(LETTERS, k=rng.randint(1, 9))) for _ in range(rng.randint(0, 4))
        ]
        spans = [[match.span() for match in wanted.finditer(x)] for x in given]
        assert pattern.found(given) == spans, (text, given)
        whole = [wanted.fullmatch(x) is not None for x in given]
        assert pattern.is_all_of(given) == whole, (text, given)


def test_empty_texts() -> None:
    for text in ("a*", "a", r"\b", r"\w+"):
        wanted, pattern = re.compile(text), Pattern.read(text)
        assert pattern.found(["", ""]) == [[m.span() for m in wanted.finditer("")]] * 2
        assert pattern.is_all_of([""]) == [wanted.fullmatch("") is not None]


def test_long_texts_of_one_letter() -> None:
    """Python's matcher takes some hours for these."""
    count = 1_000_000
    text = "a" * count
    assert Pattern.read("a*b").found([text, text + "b"]) == [[], [(0, count + 1)]]
    assert Pattern.read("a*" + "a" * 300 + "b").found([text]) == [[]]
    assert Pattern.read(r"\w\w*\B[ab]").is_all_of([text, text + "-"]) == [True, False]


@pytest.mark.parametrize("text", ["a{3,2}", "[b-a]", "a+?", r"\b+", "(a)", "^a", "a$", "x" * 1001])
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="is more than"):
        Pattern.read(text)
