"""Pytrees: taking nestings apart, putting them together, names and signatures."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import TraceError
from graphc.frontend.trace.tree import (
    LEAF,
    exact,
    flatten,
    leaf_names,
    register_pytree,
    unflatten,
    unique_names,
)

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Layer:
    w: object
    b: object = None


class Box:
    def __init__(self, inside, label):
        self.inside = inside
        self.label = label


register_pytree(Box, lambda box: ((box.inside,), box.label), lambda label, c: Box(c[0], label))


@pytest.mark.parametrize(
    "value",
    [
        1,
        None,
        (),
        [],
        {},
        (1, [2, 3], {"a": 4, "b": (5, None)}),
        Pair(1, (2, 3)),
        Layer(1, {"x": 2}),
        OrderedDict([("z", 1), ("a", 2)]),
        {3: 1, 1: 2},
        {"a": 1, 2: 3},
    ],
)
def test_round_trip(value):
    leaves, tree = flatten(value)
    assert unflatten(tree, leaves) == value
    assert type(unflatten(tree, leaves)) is type(value)
    assert len(leaf_names(tree)) == tree.count == len(leaves)


def test_trees_are_interned_whatever_the_order_of_a_dict():
    assert flatten({"a": 1, "b": [2]})[1] is flatten({"b": [5], "a": 6})[1]
    assert flatten({"a": 1})[1] is not flatten({"b": 1})[1]
    assert flatten([1])[1] is not flatten((1,))[1]
    assert flatten({"b": 1, "a": 2})[0] == [2, 1]


def test_results_keep_the_order_of_a_dict():
    leaves, tree = flatten({"z": 1, "a": 2}, keep_order=True)
    assert leaves == [1, 2]
    assert list(unflatten(tree, leaves)) == ["z", "a"]


def test_names_are_paths():
    value = {"layers": [Layer(1, 2), Layer(3)], "p": Pair(4, 5), "n": None}
    names = leaf_names(flatten(value)[1])
    assert names == ("layers.0.w", "layers.0.b", "layers.1.w", "p.left", "p.right")
    assert leaf_names(flatten(7)[1]) == ("",)
    assert flatten(7)[1] is LEAF


def test_names_are_made_unique():
    assert unique_names(("a.b", "a.b", "c")) == ("a.b", "a.b_2", "c")
    assert unique_names(("a", "a_2", "a")) == ("a", "a_2", "a_3")


def test_registered_classes_keep_their_auxiliary_data():
    leaves, tree = flatten(Box([1, 2], "red"))
    made = unflatten(tree, leaves)
    assert (made.inside, made.label) == ([1, 2], "red")
    assert tree is not flatten(Box([1, 2], "blue"))[1]
    with pytest.raises(TraceError, match="already registered"):
        register_pytree(Box, lambda box: ((), None), lambda label, c: None)


def test_wrong_number_of_leaves():
    with pytest.raises(TraceError, match="2 leaves was given 1"):
        unflatten(flatten((1, 2))[1], [1])


def test_a_list_that_contains_itself():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TraceError, match="contain itself"):
        flatten(endless)


EQUAL_BUT_DISTINCT = [
    (2, 2.0),
    (1, True),
    (0.0, -0.0),
    (1.0, np.float32(1)),
    (complex(0, -0.0), 0j),
    ((1, "a"), (1.0, "a")),
    (frozenset({1}), frozenset({True})),
    (Pair(1, 2), (1, 2)),
]


@pytest.mark.parametrize("pair", EQUAL_BUT_DISTINCT)
def test_values_that_compute_differently_stay_apart(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert one == other
    assert exact(one) != exact(other)
    for value in pair:
        assert exact(value) == exact(copy.deepcopy(value))
        assert hash(exact(value)) == hash(exact(copy.deepcopy(value)))


def test_not_a_number_is_one_value() -> None:
    assert exact((float("nan"),)) == exact((float("nan"),))
    assert hash(exact(float("nan"))) == hash(exact(-float("nan")))


class Scaled:
    def __init__(self, x: Any, factor: Any) -> None:
        self.x, self.factor = x, factor


register_pytree(Scaled, lambda s: ([s.x], s.factor), lambda factor, c: Scaled(c[0], factor))


def test_what_specialises_is_known_by_its_type_and_sign_too() -> None:
    x = np.arange(4, dtype=np.int32)
    static = gc.compile(lambda x, how: x * how[0], static="how")
    registered = gc.compile(lambda s: Scaled(s.x * s.factor, s.factor))
    for _ in range(4):
        for factor in (2, 2.0, True, 1.0, 0.0, -0.0):
            made = registered(Scaled(x, factor))
            assert type(made.factor) is type(factor)
            for found in (static(x, (factor,)), made.x):
                assert found.dtype == (x * factor).dtype
                np.testing.assert_array_equal(np.signbit(found), np.signbit(x * factor))
                np.testing.assert_array_equal(found, x * factor)
    assert len(static.compiles) == len(registered.compiles) == 6
