"""Nested arguments and results go through the native entry; what it refuses gives the same."""

from __future__ import annotations

import dataclasses
import gc as collector
import threading
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from leaks import assert_nothing_is_left

import graphc as gc
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.decorator import CompiledFunction
from graphc.frontend.compile.variant import UNKNOWN
from graphc.frontend.trace.tree import flatten, register_pytree, unflatten

X = np.arange(4, dtype="f4")
Pair = namedtuple("Pair", "w b")


@dataclasses.dataclass
class Layer:
    w: object
    b: object


class Box:
    def __init__(self, inside, label):
        self.inside, self.label = inside, label

    def __eq__(self, other):
        return np.array_equal(self.inside, other.inside) and self.label == other.label


register_pytree(Box, lambda box: ([box.inside], box.label), lambda label, c: Box(c[0], label))


class Reordered(tuple):
    """A tuple that shows its items the other way round."""

    _fields = ("w", "b")

    def __new__(cls, w, b):
        return super().__new__(cls, (w, b))

    def __iter__(self):
        return reversed(tuple(self[k] for k in range(2)))


def filled(number):
    return np.full(4, number, "f4")


def layers(count=10):
    return {f"layer{k}": {"w": filled(k), "b": filled(-k)} for k in range(count)}


def mapped(function, value):
    """The nesting with `function` of every array, by Python's own means."""
    leaves, tree = flatten(value, keep_order=True)
    return unflatten(tree, [function(leaf) for leaf in leaves])


def step(params, x):
    return mapped(lambda leaf: leaf * np.float32(0.5) + x, params)


def same(found, expected):
    """Whether nestings are equal but for the order of keys: arguments have them sorted."""
    leaves, tree = flatten(found)
    wanted, other = flatten(expected)
    return tree is other and all(map(np.array_equal, leaves, wanted))


def warm(function, *args, **kwargs):
    """A compiled function of which a call like this one runs natively."""
    compiled = gc.compile(function)
    for _ in range(4):
        compiled(*args, **kwargs)
    assert is_native(compiled, *args, **kwargs)
    return compiled


def is_native(compiled: CompiledFunction, *args, **kwargs) -> bool:
    """Whether the native entry of the latest call takes this one."""
    entry, variant, *_ = compiled._last
    before = variant.run
    variant.run = lambda leaves: UNKNOWN  # what Python would go on with
    try:
        return compiled._known(args, kwargs) is not UNKNOWN or entry(*args) is not None
    finally:
        variant.run = before


NESTINGS = {
    "dict": layers(),
    "flat dict": {f"p{k}": filled(k) for k in range(20)},
    "other keys": {3: filled(1), (1, 2): filled(2), None: filled(3)},
    "list": [filled(k) for k in range(5)],
    "tuple": (filled(1), (filled(2), [filled(3)])),
    "none": {"a": filled(1), "n": None, "e": {}, "t": (), "l": []},
    "dataclass": [Layer(filled(1), filled(2)), Layer(filled(3), None)],
    "named tuple": {"a": Pair(filled(1), {"c": filled(2)})},
    "ordered": [OrderedDict(z=filled(1), a=filled(2))],
    "default": {"d": defaultdict(list, z=filled(1), a=filled(2))},
    "registered": [Box(filled(1), "red")],
    "reordered": [Reordered(filled(1), filled(2))],
}


@pytest.mark.parametrize("kind", NESTINGS)
def test_every_container_is_taken_apart_and_nested_natively(kind):
    params = NESTINGS[kind]
    compiled = warm(step, params, X)
    for number in (1, 2):
        x = X + number
        assert same(compiled(params, x), step(params, x))
    assert len(compiled.compiles) == 1


def test_a_dict_in_another_order_and_results_in_the_order_of_the_function():
    compiled = warm(lambda p: {"z": p["a"] + 1, "a": p["z"] * 2}, {"a": X, "z": X})
    made = compiled({"z": X + 1, "a": X})
    assert list(made) == ["z", "a"]
    np.testing.assert_array_equal(made["z"], X + 1)
    np.testing.assert_array_equal(made["a"], 2 * X + 2)


class Mapping(dict):
    """No plain dict."""


class Array(np.ndarray):
    """No plain array."""


def replaced(**changes):
    return {**layers(2)["layer1"], **changes}


CHANGES = {
    "missing": {"w": X},
    "extra": replaced(c=X),
    "renamed": {"w": X, "c": X},
    "shape": replaced(b=X[:2]),
    "rank": replaced(b=X.reshape(2, 2)),
    "dtype": replaced(b=X.astype("f8")),
    "byte order": replaced(b=X.astype(">f4")),
    "strided": replaced(b=np.zeros(8, "f4")[::2]),
    "read-only": replaced(b=np.broadcast_to(X, (4,))),
    "array subclass": replaced(b=X.view(Array)),
    "masked": replaced(b=np.ma.array(X, mask=False)),
    "dict subclass": Mapping(replaced()),
    "ordered dict": OrderedDict(replaced()),
    "user dict": UserDict(replaced()),
    "a list": [X, X],
    "none": replaced(b=None),
    "text": replaced(b="text"),
    "a number": replaced(b=2.0),
    "a NumPy number": replaced(b=np.float32(3)),
    "an array on a device": replaced(b=gc.compile(lambda x: x + 1).resident(X)),
    "a container in place of an array": replaced(b=[X]),
    "an array in place of a container": X,
}


def total(params, x):
    return params["layer0"]["w"] + params["layer0"]["b"] + sum(flatten(params["layer1"])[0], x)


def outcome(call):
    try:
        return call()
    except GraphError as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.parametrize("change", CHANGES)
def test_anything_else_gives_what_a_function_without_a_past_gives(change):
    params = {**layers(2), "layer1": CHANGES[change]}
    compiled = warm(total, layers(2), X)
    found, expected = (outcome(lambda f=f: f(params, X)) for f in (compiled, gc.compile(total)))
    assert same(found, expected) if isinstance(found, np.ndarray) else found == expected
    for _ in range(4):
        np.testing.assert_array_equal(compiled(layers(2), X), total(layers(2), X))
    if isinstance(found, np.ndarray):
        for _ in range(4):
            assert same(compiled(params, X), expected)


def call(a, b=2.0, *rest, mode="add", scale=None, **named):
    total = a + b if mode == "add" else a * b
    for other in (*rest, scale, *named.values()):
        total = total if other is None else total + other
    return {"total": total}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X,), {}),
        ((X, X), {}),
        ((X, 1.5), {}),
        ((X, X, X, {"k": X}["k"]), {}),
        ((X,), {"b": X}),
        ((), {"b": X, "a": X + 1}),
        ((X,), {"scale": X}),
        ((X,), {"mode": "mul", "b": X}),
        ((X, X, X), {"scale": X, "other": X + 1, "another": X + 2}),
        ((X, np.float32(2)), {"scale": np.float64(3)}),
        ((X, True), {"scale": 3}),
    ],
)
def test_calls_of_every_form(args, kwargs):
    compiled = warm(call, *args, **kwargs)
    again = [mapped(lambda leaf: leaf + leaf.dtype.type(1), a) if a is X else a for a in args]
    np.testing.assert_allclose(compiled(*again, **kwargs)["total"], call(*again, **kwargs)["total"])
    assert len(compiled.compiles) == 1


def test_a_name_is_no_dict_and_a_dict_no_name():
    compiled = gc.compile(lambda x, y=None, **named: x + (1 if y is None else sum(y.values())))
    for _ in range(5):
        np.testing.assert_array_equal(compiled(X, {"z": X}), 2 * X)
        np.testing.assert_array_equal(compiled(X, z=X), X + 1)
        np.testing.assert_array_equal(compiled(X), X + 1)
    with pytest.raises(FeedError, match="multiple values"):
        compiled(X, x=X)


def test_static_arguments_are_told_apart():
    compiled = gc.compile(lambda x, how: x * 2 if how == "twice" else x * how, static="how")
    for _ in range(5):
        np.testing.assert_array_equal(compiled(X, "".join(["tw", "ice"])), X * 2)
        np.testing.assert_array_equal(compiled(X, "twice"), X * 2)
        np.testing.assert_array_equal(compiled(X, 3), X * 3)
        np.testing.assert_array_equal(compiled(X, True), X)
    assert len(compiled.compiles) == 3


def test_numbers_keep_their_kind():
    compiled = gc.compile(lambda p: p["x"] + p["n"])
    kinds = (2, 2.5, True, 2**63, -5, np.float64(1.5), np.float32(1.5), 3)
    for _ in range(4):
        for number in kinds:
            found, wanted = compiled({"x": X, "n": number}), X + np.asarray(number)
            np.testing.assert_allclose(found, wanted)
    assert len(compiled.compiles) == 6


def test_methods_run_natively():
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @gc.compile
        def scale(self, p, n=1.0):
            return {"y": p["x"] * self.factor + n}

    two, three = Model(2.0), Model(3.0)
    for _ in range(4):
        np.testing.assert_array_equal(two.scale({"x": X})["y"], 2 * X + 1)
        np.testing.assert_array_equal(three.scale({"x": X}, n=2.0)["y"], 3 * X + 2)
    entry = Model.scale._last.entry
    assert entry(three, {"x": X}, {"n": 2.0}, None) is None  # somebody else's last argument


def test_donated_arrays_of_a_dict_are_the_results():
    compiled = gc.compile(step, donate="params")
    params = layers()
    for _ in range(4):
        params = compiled(params, X)
    assert is_native(compiled, mapped(np.copy, params), X)
    made = compiled(params, X)
    assert all(made[k][name] is params[k][name] for k in made for name in "wb")
    shared = {**layers(), "layer1": {"w": X, "b": X}}
    frozen = mapped(np.copy, params)
    frozen["layer3"]["w"].flags.writeable = False
    for given in (shared, frozen):
        wanted = step(given, X)
        assert same(compiled(given, X.copy()), wanted)
        assert same(mapped(np.copy, X), X)


# ------------------------------------------------------------------------------------ hostile


class Key(str):
    """A key whose comparison runs Python code."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        type(self).act()
        return str.__eq__(self, other)

    act = staticmethod(lambda: None)


@pytest.mark.usefixtures("frozen")
def test_a_dict_that_changes_while_it_is_looked_at(monkeypatch):
    compiled = warm(lambda p: p["in"]["w"] + p["in"]["b"], {"in": {"w": X, "b": X}})
    for clear in (True, False):
        inner = {Key("w"): filled(3), Key("b"): filled(4)}
        outer = {"in": inner}

        def act(inner=inner, outer=outer, clear=clear):
            outer.clear()
            if clear:
                inner.clear()
            collector.collect()

        monkeypatch.setattr(Key, "act", staticmethod(act))
        try:
            found = compiled(outer)
        except (GraphError, KeyError):
            continue
        np.testing.assert_array_equal(found, filled(7))


def test_an_error_of_a_key_or_an_attribute_is_that_of_python(monkeypatch):
    def fails(error):
        def act(*_):
            raise error

        return act

    compiled = warm(lambda p: p["w"] + p["b"], {"w": X, "b": X})
    for error in (ValueError("mine"), KeyboardInterrupt()):
        monkeypatch.setattr(Key, "act", staticmethod(fails(error)))
        hostile = {Key("w"): X, Key("b"): X}
        for _ in range(3):
            with pytest.raises(type(error)):
                compiled(hostile)
        monkeypatch.undo()

    class Strange(Layer):
        pass

    compiled = warm(lambda p: p.w + p.b, Strange(X, X))
    Strange.w = property(fails(ValueError("no w")), lambda self, value: None)
    for _ in range(3):
        with pytest.raises(ValueError, match="no w"):
            compiled(Strange(X, X))


def test_a_container_that_cannot_be_made_raises_and_loses_nothing():
    refuses = []

    class Picky(namedtuple("Picky", "a b")):
        def __new__(cls, a, b):
            if refuses:
                raise ValueError("refused")
            return super().__new__(cls, a, b)

    compiled = warm(lambda x: [x + 1, Picky(x + 2, x + 3), x + 4], X)
    refuses.append(True)

    def calls():
        for _ in range(1000):
            with pytest.raises(ValueError, match="refused"):
                compiled(X)

    assert_nothing_is_left(calls)
    refuses.clear()
    np.testing.assert_array_equal(compiled(X)[1].b, X + 3)


@pytest.mark.parametrize("kind", NESTINGS)
def test_reference_counts_and_memory(kind):
    params = NESTINGS[kind]
    compiled = warm(step, params, X)
    wrong = [params, params]
    leaves = [*flatten(params)[0], X]
    entry = compiled._last.entry
    strict = (1, "text", "w", None, np.dtype("f4"), True)

    def calls():
        for _ in range(400):
            compiled(params, X)
            entry(wrong, X)
            entry(params, X[:3])
            entry(params)

    counted = (*leaves, params, wrong, *strict, type(params))
    assert_nothing_is_left(calls, counted, references=100)


def test_a_hundred_thousand_calls_leak_nothing():
    params = layers()
    compiled = warm(step, params, X)
    w = params["layer3"]["w"]

    def calls():
        for _ in range(100_000):
            compiled(params, X)

    assert_nothing_is_left(calls, [w])


def test_several_threads_while_another_changes_the_dict():
    def layer(k):
        return {"w": np.full(4096, k, "f4"), "b": np.ones(4096, "f4")}

    def double(p):
        return mapped(lambda leaf: leaf * 2, p)

    params = {f"layer{k}": layer(k) for k in range(8)}
    expected = double(params)
    compiled = warm(double, params)
    compiled._last.variant.built.executable._context[3] = 1  # drop the GIL
    stop = threading.Event()

    def change():
        while not stop.is_set():
            params["layer3"] = layer(3)
            params["layer5"]["w"] = layer(5)["w"]

    def run(_):
        return same(compiled(params), expected)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with ThreadPoolExecutor(4) as workers:
            assert all(workers.map(run, range(400)))
    finally:
        stop.set()
        changer.join()


def test_many_more_leaves_than_the_entry_has_room_for():
    params = {f"p{k}": filled(k) for k in range(12_000)}
    compiled = gc.compile(lambda p: {"first": p["p0"] + 1, "last": p["p11999"] * 2})
    for _ in range(3):
        made = compiled(params)
        np.testing.assert_array_equal(made["first"], X * 0 + 1)
        np.testing.assert_array_equal(made["last"], filled(11999) * 2)


def test_recent_signatures_take_turns_natively():
    compiled = gc.compile(lambda p, x: {"y": p["w"] + x})
    shapes = [np.ones(n, "f4") for n in range(1, 6)]
    for _ in range(4):
        for x in shapes:
            compiled({"w": x}, x)
    for x in shapes:
        assert is_native(compiled, {"w": x}, x)
        np.testing.assert_array_equal(compiled({"w": x}, x)["y"], 2 * x)
