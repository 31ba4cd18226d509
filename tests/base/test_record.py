"""Records behave like frozen or plain dataclasses with slots."""

from __future__ import annotations

import inspect
import re
from dataclasses import FrozenInstanceError, field
from types import FunctionType

import pytest
from project import ROOT

from graphc.base.record import record, replace


@record(frozen=True)
class Point:
    """Two numbers."""

    x: int
    y: int = 2

    @property
    def sum(self) -> int:
        return self.x + self.y


@record(frozen=True)
class Named(Point):
    name: str = ""


@record
class Bag:
    items: list[int] = field(default_factory=list)
    size: int = field(default=3)


@record(eq=False)
class Unique:
    value: int


def test_fields_defaults_and_methods() -> None:
    assert Point(1).sum == 3
    assert repr(Point(x=4, y=5)) == "Point(x=4, y=5)"
    assert Point.__doc__ == "Two numbers."
    match Point(6, 7):
        case Point(x, y):
            assert (x, y) == (6, 7)


def test_equality_and_hash() -> None:
    assert Point(1, 2) == Point(1)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2
    assert Point(1) != Named(1)
    assert Unique(1) != Unique(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Bag())


def test_frozen_and_slots() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 5  # type: ignore[misc]
    bag = Bag()
    bag.size = 4
    assert (bag.size, Bag().size) == (4, 3)
    with pytest.raises(AttributeError):
        bag.other = 1  # type: ignore[attr-defined]


def test_every_instance_gets_its_own_default() -> None:
    first, second = Bag(), Bag()
    first.items.append(1)
    assert second.items == []
    assert Bag([5]).items == [5]


def test_inherited_fields_come_first() -> None:
    named = Named(1, 2, "n")
    assert (named.x, named.y, named.name) == (1, 2, "n")
    with pytest.raises(TypeError):
        Named()  # type: ignore[call-arg]


@record(frozen=True)
class Checked:
    size: int
    sample: list[int] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size below 0")


def test_init_is_written_once_it_is_asked_for() -> None:
    @record
    class Pair:
        first: int
        second: int = 2

    class Third(Pair):
        pass

    assert not isinstance(vars(Pair)["__init__"], FunctionType)
    assert str(inspect.signature(Pair)) == "(first, second=2)"
    written = vars(Pair)["__init__"]
    assert isinstance(written, FunctionType)
    assert Third(1).second == 2
    assert vars(Pair)["__init__"] is written


def test_an_init_that_is_wrapped_before_it_was_written_stays_wrapped() -> None:
    @record
    class Pair:
        first: int

    made = Pair.__init__
    Pair.__init__ = lambda self, first: made(self, first + 1)  # type: ignore[method-assign]
    assert (Pair(1).first, Pair(2).first) == (2, 3)


def test_a_copy_with_changes_is_made_by_init() -> None:
    assert replace(Point(1, 2), x=3) == Point(3, 2)
    assert replace(Named(1, 2, "n"), name="m") == Named(1, 2, "m")
    with pytest.raises(TypeError):
        replace(Point(1), z=3)
    with pytest.raises(ValueError, match="below 0"):
        replace(Checked(1), size=-1)


def test_fields_may_be_left_out_of_comparison_and_repr() -> None:
    assert Checked(1, [1]) == Checked(1, [2])
    assert hash(Checked(1, [1])) == hash(Checked(1))
    assert repr(Checked(1, [1])) == "Checked(size=1)"
    with pytest.raises(ValueError, match="below 0"):
        Checked(-1)


def test_there_is_one_kind_of_record() -> None:
    """dataclasses are the users'; in graphc they are only looked at."""
    uses = re.compile(r"@(dataclasses\.)?dataclass\b")
    assert not [p for p in (ROOT / "graphc").rglob("*.py") if uses.search(p.read_text())]
