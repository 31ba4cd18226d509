"""What a trace read of classes is watched: their attributes, class methods, what super() finds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc as gc

X = np.arange(3.0)

Change = Callable[[], Any]


def scaled(kind: Any, x: Any) -> Any:
    return x * kind.k


def classes() -> SimpleNamespace:
    """New classes, each derived from the one before it."""

    class Root:
        rate = 2.0
        calls = 0

        def shifted(self, x: Any) -> Any:
            return x + self.rate

        @classmethod
        def spread(cls, x: Any) -> Any:
            return x * cls.rate

        @staticmethod
        def fixed(x: Any) -> Any:
            return x - 1.0

        @property
        def gain(self) -> Any:
            return self.rate + 1.0

    class Middle(Root):
        k = 3.0
        table = np.ones(3)
        given = 3.0

        @classmethod
        def f(cls, x: Any) -> Any:
            return x * cls.k

        @classmethod
        def through(cls, x: Any) -> Any:
            return cls.f(x) + 1.0

        @classmethod
        def hands_on(cls, x: Any) -> Any:
            return scaled(cls, x)

        @classmethod
        @gc.compile
        def compiled(cls, x: Any) -> Any:
            return x * cls.k

        @classmethod
        def counted(cls, x: Any) -> Any:
            cls.calls += 1
            return x * cls.k

        def of_instance(self, x: Any) -> Any:
            return self.f(x)

        def of_its_class(self, x: Any) -> Any:
            return x * self.__class__.k

    class Leaf(Middle):
        def shifted(self, x: Any) -> Any:
            return super().shifted(x) * 2.0

        @classmethod
        def spread(cls, x: Any) -> Any:
            return super().spread(x) * 2.0

        def fixed(self, x: Any) -> Any:  # type: ignore[override]
            return super().fixed(x) * 2.0

        @property
        def gain(self) -> Any:
            return super().gain * 2.0

        def given_times(self, x: Any) -> Any:
            return x * super().given

        def explicit(self, x: Any) -> Any:
            return super(Middle, self).shifted(x) * 2.0

    return SimpleNamespace(Root=Root, Middle=Middle, Leaf=Leaf)


def uses(made: SimpleNamespace) -> dict[str, tuple[Callable[[Any], Any], Change]]:
    """Functions that read classes, and changes of what they read."""
    Root, Middle, Leaf = made.Root, made.Middle, made.Leaf
    middle, leaf, hidden = Middle(), Leaf(), Middle()
    hidden.k = 70.0  # what a class method reads is not that of the instance

    def put(kind: Any, name: str, value: Any) -> Change:
        return lambda: setattr(kind, name, value)

    k, rate = put(Middle, "k", 8.0), put(Root, "rate", 8.0)
    other = lambda self, x: x * 50.0
    return {
        "class method": (lambda x: Middle.f(x), k),
        "bound class method": (Middle.f, k),
        "compiled class method": (lambda x: Middle.compiled(x), k),
        "class method of a subclass": (lambda x: Leaf.f(x), k),
        "subclass hides": (lambda x: Leaf.f(x), put(Leaf, "k", 9.0)),
        "class between hides": (lambda x: Leaf.spread(x), put(Middle, "rate", 9.0)),
        "through another": (lambda x: Leaf.through(x), k),
        "of an instance": (lambda x: middle.f(x), k),
        "of an instance that hides": (lambda x: hidden.f(x), k),
        "of self": (lambda x: leaf.of_instance(x), k),
        "of the class of self": (lambda x: leaf.of_its_class(x), k),
        "class handed on": (lambda x: Leaf.hands_on(x), k),
        "bound class handed on": (Leaf.hands_on, k),
        "inherited attribute": (lambda x: x * Leaf.k, k),
        "elements": (lambda x: x * Leaf.table, lambda: Middle.table.fill(7.0)),
        "another class method": (lambda x: Leaf.f(x), put(Middle, "f", classmethod(other))),
        "another static method": (lambda x: Middle.fixed(x), put(Root, "fixed", lambda x: x)),
        "super": (lambda x: leaf.shifted(x), put(Root, "shifted", other)),
        "super of a class between": (lambda x: leaf.shifted(x), put(Middle, "shifted", other)),
        "super reads": (lambda x: leaf.shifted(x), rate),
        "super of a class method": (lambda x: Leaf.spread(x), put(Root, "spread", Middle.f)),
        "super of a class method reads": (lambda x: Leaf.spread(x), rate),
        "super of its instance": (lambda x: leaf.spread(x), rate),
        "super of a static method": (
            lambda x: leaf.fixed(x),
            put(Root, "fixed", staticmethod(lambda x: x * 9.0)),
        ),
        "super of a property": (
            lambda x: x * leaf.gain,
            put(Root, "gain", property(lambda self: 9.0)),
        ),
        "super of a property reads": (lambda x: x * leaf.gain, rate),
        "super of a number": (lambda x: leaf.given_times(x), put(Middle, "given", 9.0)),
        "super with arguments": (lambda x: leaf.explicit(x), put(Root, "shifted", other)),
    }


@pytest.mark.parametrize("which", uses(classes()))
def test_what_classes_define_does_not_go_stale(which: str) -> None:
    function, change = uses(classes())[which]
    compiled = gc.compile(function)
    before = function(X)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), before)
    assert len(compiled.compiles) == 1
    change()
    assert not np.array_equal(before, function(X))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), function(X))
    assert len(compiled.compiles) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("k", 9.0), ("f", classmethod(lambda cls, x: x + cls.k))]
)
def test_what_is_added_or_deleted_is_seen(name: str, value: Any) -> None:
    """A class that hides what a base defines, and no longer does."""
    Leaf = classes().Leaf
    compiled = gc.compile(lambda x: Leaf.f(x))
    before = compiled(X).tolist()
    setattr(Leaf, name, value)
    np.testing.assert_array_equal(compiled(X), Leaf.f(X))
    assert compiled(X).tolist() != before
    delattr(Leaf, name)
    assert compiled(X).tolist() == before


def test_objects_of_one_class_are_told_apart() -> None:
    """What a base reads of each of two objects is watched."""
    Leaf = classes().Leaf
    first, second = Leaf(), Leaf()
    function = lambda x: first.shifted(x) + second.shifted(x)
    compiled = gc.compile(function)
    compiled(X)
    for each in (first, second):
        each.rate = 9.0
        np.testing.assert_array_equal(compiled(X), function(X))


def test_attributes_that_a_class_method_counts_or_does_not_read_may_change() -> None:
    made = classes()
    compiled = gc.compile(lambda x: made.Middle.counted(x))
    compiled(X)
    made.Middle.calls, made.Middle.rate, made.Root.rate = 100, 5.0, 6.0
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), X * 3.0)
    assert len(compiled.compiles) == 1
