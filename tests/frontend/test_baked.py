"""What a trace read from outside of its arguments: watched, traced again when it changed."""

from __future__ import annotations

import array
import functools
import threading
import warnings
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import graphc as gc
from graphc.errors import TraceError
from graphc.frontend.compile.baked import baked

X = np.arange(3.0)
SCALE = 2.0
settings = ModuleType("settings")


class Part:
    def __init__(self):
        self.k = 2.0

    def __call__(self, x):
        return x * self.k


class Base:
    def shifted(self, x):
        return x + self.shift


class Net(Base):
    factor = 3.0

    def __init__(self):
        self.w = np.ones(3)
        self.big = np.ones(2000)
        self.shift = 1.0
        self.part = Part()
        self.config = SimpleNamespace(rate=0.5)
        self.layers = [np.ones(3), {"b": np.ones(3)}]
        self.flag = True
        self.calls = 0

    def shifted(self, x):
        return super().shifted(x)

    @property
    def double(self):
        return 2 * self.w

    @gc.compile
    def run(self, x):
        self.calls += 1
        inner = lambda x: x * self.w + self.double
        x = self.shifted(self.part(inner(x))) * self.config.rate + self.layers[1]["b"]
        return (x if self.flag else -x) * self.factor + self.layers[0] + self.big.sum()

    def plain(self, x):
        return Net.run.function(self, x)


CHANGES = {
    "array": lambda net: setattr(net, "w", np.full(3, 5.0)),
    "element": lambda net: net.w.__setitem__(1, 7.0),
    "all of a large array": lambda net: net.big.__imul__(3),
    "number": lambda net: setattr(net, "shift", 4.0),
    "flag": lambda net: setattr(net, "flag", False),
    "called object": lambda net: setattr(net, "part", Part()) or setattr(net.part, "k", 9.0),
    "in a called object": lambda net: setattr(net.part, "k", 9.0),
    "namespace": lambda net: setattr(net, "config", SimpleNamespace(rate=4.0)),
    "in a namespace": lambda net: setattr(net.config, "rate", 4.0),
    "item": lambda net: net.layers.__setitem__(0, np.zeros(3)),
    "in a dict": lambda net: net.layers[1].__setitem__("b", np.zeros(3)),
    "of the class": lambda net: setattr(net, "factor", 10.0),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_methods_do_not_go_stale(kind):
    net, before = Net(), len(Net.run.compiles)
    for _ in range(3):
        np.testing.assert_allclose(net.run(X), net.plain(X))
    assert len(Net.run.compiles) == before + 1
    CHANGES[kind](net)
    for _ in range(3):
        np.testing.assert_allclose(net.run(X), net.plain(X))
    assert len(Net.run.compiles) == before + 2
    assert Net.run.compiles[-1].reason.startswith("self.")
    assert net.run.graph(X) is net.run.graph(X)


def test_what_was_read_may_go_back():
    net = Net()
    results = []
    for flag in (True, False, True, False):
        net.flag = flag
        results.append(net.run(X).tolist())
    assert results[:2] == results[2:] and results[0] != results[1]
    assert sum("self.flag" in each.reason for each in Net.run.compiles) >= 1


def test_attributes_that_are_not_read_may_change():
    net = Net()
    net.run(X)
    before = len(Net.run.compiles)
    net.other, net.calls = 3, 100
    net.run(X)
    net.run(X)
    assert len(Net.run.compiles) == before


def test_a_method_of_a_static_self_is_not_watched():
    class Fixed:
        w = 2.0

        @gc.compile(static="self")
        def run(self, x):
            return x * self.w

    fixed = Fixed()
    assert fixed.run(X).tolist() == (2 * X).tolist()
    fixed.w = 3.0
    assert fixed.run(X).tolist() == (2 * X).tolist()


def test_globals_cells_and_modules():
    global SCALE
    settings.rate = 1.0
    table = np.ones(3)
    number = 1.0

    def helper(x):
        return x * SCALE

    def outer(x):
        return helper(x) * table + number * settings.rate

    def change(value):
        nonlocal number
        number = value

    f = gc.compile(outer)
    np.testing.assert_array_equal(f(X), outer(X))
    for step in (
        lambda: globals().update(SCALE=SCALE + 1),
        lambda: table.__setitem__(0, 8.0),
        lambda: change(6.0),
        lambda: setattr(settings, "rate", 2.5),
    ):
        step()
        for _ in range(2):
            np.testing.assert_array_equal(f(X), outer(X))
    reasons = [each.reason for each in f.compiles]
    assert len(reasons) == 5
    assert reasons[1] == "global SCALE: 2.0 -> 3.0"
    assert reasons[2] == "table: its elements changed"
    assert reasons[3] == "number: 1.0 -> 6.0"
    assert reasons[4] == "global settings.rate: 1.0 -> 2.5"
    SCALE = 2.0


def test_a_helper_that_is_defined_anew_is_seen():
    """As people do in a notebook: a function, or a class, with the name of the one before."""
    space = {"gc": gc}
    exec("def helper(x):\n    return x + 1", space)
    exec("class Scale:\n    def __call__(self, x):\n        return x * 2", space)
    exec("f = gc.compile(lambda x: helper(x), sizes='exact')", space)
    exec("g = gc.compile(lambda x: Scale()(x))", space)
    x = np.ones(3, np.float32)
    for _ in range(3):
        assert space["f"](x)[0] == 2 and space["g"](x)[0] == 2
    exec("def helper(x):\n    return x + 2", space)
    exec("class Scale:\n    def __call__(self, x):\n        return x * 5", space)
    assert space["f"](x)[0] == 3 and space["g"](x)[0] == 5
    assert space["f"](x)[0] == 3 and space["g"](x)[0] == 5


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (1.0, 1, False),
        (0.0, -0.0, False),
        (np.nan, float("nan"), True),
        (True, 1, False),
        (2.5, float("2.5"), True),
        ("a", "".join(["a"]), True),
        (np.float32(2), np.float32(2), True),
    ],
)
def test_numbers_are_compared_exactly(before, after, same):
    holder = SimpleNamespace(n=before)
    f = gc.compile(lambda x: x * len(holder.n) if isinstance(holder.n, str) else x * holder.n)
    f(X)
    holder.n = after
    f(X)
    assert len(f.compiles) == (1 if same else 2)


def test_functions_that_read_nothing_keep_the_plain_entry():
    f = gc.compile(lambda x: np.tanh(x) * 2)
    f(X)
    f(X)
    assert not f._last.variant.baked
    assert f._last.entry is f._last.variant.built.executable.entry


def test_a_value_that_keeps_changing_is_hinted_at():
    holder = SimpleNamespace(n=0)
    f = gc.compile(lambda x: x * holder.n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for holder.n in range(10):
            assert f(X).tolist() == (X * holder.n).tolist()
    assert any("holder.n: 6 -> 7" in str(w.message) for w in caught)


def test_a_compiled_function_inside_another():
    holder = SimpleNamespace(n=2.0)
    inner = gc.compile(lambda x: x * holder.n)
    outer = gc.compile(lambda x: inner(x) + gc.grad(lambda y: (inner(y) * holder.n).sum())(x))
    assert outer(X).tolist() == (X * 2 + 4).tolist()
    holder.n = 3.0
    assert outer(X).tolist() == (X * 3 + 9).tolist()


# ------------------------------------------------------------------------------------ objects


class Model:
    def __init__(self):
        self.w, self.k = np.ones(3), 1.0

    def __call__(self, x):
        return x * self.w * self.k

    @gc.compile
    def run(self, x):
        return x * self.w * self.k


class Slotted:
    __slots__ = ("k", "w")
    __init__ = Model.__init__
    __call__ = Model.__call__


class SlottedByName(Slotted):
    __slots__ = ()

    def __call__(self, x):
        return x * getattr(self, "w") * getattr(self, "k")  # noqa: B009


class WithProperty(Model):
    @property
    def both(self):
        return self.w * self.k

    def __call__(self, x):
        return x * self.both


class CompiledCall(Model):
    __call__ = Model.run


class Forwarding(Model):
    __call__ = (lambda inner: lambda *args: inner(*args))(Model.__call__)


class Wrapper:
    def __init__(self):
        self.models = [Model()]

    def __call__(self, x):
        return functools.reduce(lambda x, model: model(x), self.models, x)


# A base class in a package that is installed.
space: dict[str, Any] = {"__name__": "numpy.a_library"}
library = "class Base:\n    def __call__(self, *args):\n        return self.forward(*args)"
exec(compile(library, np.__file__, "exec"), space)
OfALibrary = type(
    "OfALibrary", (space["Base"],), {"__init__": Model.__init__, "forward": Model.__call__}
)


MODELS = (
    Model,
    Slotted,
    SlottedByName,
    WithProperty,
    CompiledCall,
    Forwarding,
    Wrapper,
    OfALibrary,
)
WAYS = {
    "itself": lambda model: gc.compile(model),
    "partial": lambda model: gc.compile(functools.partial(model)),
    "method": lambda model: gc.compile(model.__call__),
    "in a list": lambda model: (lambda all: gc.compile(lambda x: all[0](x)))([model]),
    "in a compiled function": lambda model: gc.compile(gc.compile(model)),
    "checkpoint": lambda model: gc.checkpoint(model),
    "compiled checkpoint": lambda model: gc.compile(gc.checkpoint(model)),
    "vmap": lambda model: lambda x: gc.vmap(model)(x[None])[0],
    "kept vmap": lambda model: (lambda mapped: lambda x: mapped(x[None])[0])(gc.vmap(model)),
    "jacobian": lambda model: (lambda slopes: lambda x: slopes(x) @ x)(gc.jacobian(model)),
    "value_and_grad": lambda model: (lambda made: lambda x: made(x)[1] * x)(
        gc.value_and_grad(gc.checkpoint(lambda x: model(x).sum()))
    ),
    "branch": lambda model: gc.compile(lambda x: gc.cond(x.sum() > 0, model, model, x)),
}


def check_changes(function, model):
    for change in (
        lambda: None,
        lambda: setattr(model, "w", model.w * 2),
        lambda: model.w.__imul__(3),
        lambda: setattr(model, "k", 5.0),
    ):
        change()
        for _ in range(2):
            np.testing.assert_array_equal(function(X), X * model.w * model.k)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_objects_that_are_called_do_not_go_stale(kind):
    model = kind()
    compiled = gc.compile(model)
    check_changes(compiled, model.models[0] if kind is Wrapper else model)
    assert len(compiled.compiles) == 4
    assert compiled.graph(X) is compiled.graph(X)


@pytest.mark.parametrize("way", WAYS)
def test_objects_do_not_go_stale_in_any_way_they_are_called(way):
    model = Model()
    check_changes(WAYS[way](model), model)


@pytest.mark.parametrize("wrap", [lambda run: run, lambda run: lambda x: run(x), functools.partial])
def test_a_method_that_is_compiled_does_not_go_stale_in_another_function(wrap):
    model = Model()
    check_changes(gc.compile(wrap(model.run)), model)


def test_a_loop_body_that_is_an_object_does_not_go_stale():
    class Body:
        __init__ = Model.__init__

        def __call__(self, carry, x):
            return carry + self.w * self.k * x, carry

    body = Body()
    run = gc.compile(lambda x: gc.scan(body, np.zeros(3), x)[0])
    for body.k in (1.0, 2.0):
        np.testing.assert_array_equal(run(X), body.w * body.k * X.sum())


# ------------------------------------------------------------------------------------ leaks

kept = None
KEPT: list = []
BY_NAME: dict = {}


class Keeper:
    w = np.ones(3)

    def __init__(self):
        self.history = []
        self.state = {"h": np.zeros(3)}


def to_attribute(self, x):
    self.w = self.w - x
    return x


def to_new_attribute(self, x):
    self.last = x * 2
    return x


def to_list(self, x):
    self.history.append(x + 1)
    return x


def to_dict(self, x):
    self.state["h"] = np.tanh(x)
    return x


def to_global(self, x):
    global kept
    kept = x * 2
    return x


def to_global_list(self, x):
    KEPT.append(x * 2)
    return x


def to_global_dict(self, x):
    BY_NAME["h"] = [x * 2]
    return x


LEAKS = {
    to_attribute: "self.w",
    to_new_attribute: "self.last",
    to_list: "self.history[0]",
    to_dict: "self.state['h']",
    to_global: "global kept",
    to_global_list: "global KEPT[0]",
    to_global_dict: "global BY_NAME['h'][0]",
}


@pytest.mark.parametrize("function", LEAKS, ids=lambda f: f.__name__)
def test_tracers_that_are_kept_are_errors(function):
    class Kept(Keeper):
        run = gc.compile(function)

    one = Kept()
    with pytest.raises(TraceError) as caught:
        one.run(X)
    assert caught.value.message.startswith(f"{LEAKS[function]} keeps a traced array")
    assert caught.value.location[0].endswith("test_baked.py")
    assert caught.value.location[1] == function.__code__.co_firstlineno + (
        2 if function is to_global else 1
    )
    assert isinstance(one.w, np.ndarray) and "last" not in vars(one)
    KEPT.clear(), BY_NAME.clear()


@pytest.mark.parametrize("way", [lambda one: one, lambda one: one.__call__, functools.partial])
def test_tracers_that_a_called_object_keeps_are_errors(way):
    class Kept(Keeper):
        def __call__(self, x):
            self.last = x * 2
            return x

    one = Kept()
    for _ in range(2):
        with pytest.raises(TraceError, match=r"self\.last keeps a traced array"):
            gc.compile(way(one))(X)
        assert "last" not in vars(one)


def test_a_tracer_that_is_kept_by_a_cell():
    last = None

    @gc.compile
    def f(x):
        nonlocal last
        last = x * 2
        return x

    with pytest.raises(TraceError, match="last keeps a traced array"):
        f(X)
    assert deque([last])


def test_a_local_is_no_global_of_the_same_name():
    """Locals, cells that inner functions read, and names of inner functions."""

    def f(SCALE):
        inner = lambda kept: sum([kept * SCALE for _ in range(1)])
        other = [settings + 1.0 for settings in (0.0, 1.0)]
        kept = inner(SCALE) * other[1]
        return kept

    compiled = gc.compile(f)
    for value in range(3):
        globals().update(SCALE=value, kept=value)
        compiled(X)
    globals().update(SCALE=2.0, kept=None)
    assert len(compiled.compiles) == 1
    assert not compiled._last.variant.baked


def test_objects_of_any_kind_are_walked():
    """Circles, slots, made-up attributes, properties that fail, cells that are empty."""

    class Slotted:
        __slots__ = ("k", "me")

    class Odd:
        def __init__(self):
            self.me = self

        def __getattr__(self, name):
            return mock.Mock()

        @property
        def broken(self):
            raise ValueError

    slotted, odd, circle = Slotted(), Odd(), []
    slotted.k = 2.0
    slotted.me = circle
    circle.append(circle)

    def use(x):
        if x.ndim == 5:
            return odd.broken + odd.missing + later + undefined  # noqa: F821
        return x * slotted.k + len(slotted.me) + (odd.me is odd) + len(circle)

    f = gc.compile(use)
    assert f(X).tolist() == (X * 2 + 3).tolist()
    slotted.k = 3.0
    assert f(X).tolist() == (X * 3 + 3).tolist()
    if not X.size:
        later = 1


def test_threads_see_the_values_of_now():
    holder = SimpleNamespace(n=0.0)
    f = gc.compile(lambda x: x * holder.n)
    wrong = []

    def call(value):
        for _ in range(50):
            made = f(X)[1]
            if made not in (0.0, 1.0, 2.0):
                wrong.append(made)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for holder.n in (1.0, 2.0, 1.0, 2.0):
        f(X)
    for thread in threads:
        thread.join()
    assert not wrong
    assert f(X).tolist() == (2 * X).tolist()


SHAPES = [(300, 100), (64, 64, 64), (40_000,), (5, 20_000), (500, 64, 2), (9001, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("part", ["row", "half", "all"])
def test_what_changes_in_place_in_a_large_array_is_seen(shape, part):
    table = np.zeros(shape)
    f = gc.compile(lambda x: x + table.sum())
    assert f(1.0) == 1.0
    rows = table.reshape(-1, shape[-1])
    if part == "row":  # or as many as have one element that is looked at
        rows[len(rows) // 3 :][: 1 if len(rows) <= 512 else len(rows) // 512 + 2] = 1
    else:
        rows[len(rows) // 2 if part == "half" else 0 :] = 1
    assert f(1.0) == 1.0 + table.sum()


@pytest.mark.parametrize(("watch", "seen"), [("all", True), ("none", False)])
@pytest.mark.parametrize("strides", [1, 2])
def test_every_element_or_none_is_watched_on_request(watch, seen, strides):
    table = np.zeros((300, 600))[:, ::strides]
    number = 1.0

    def change():
        nonlocal number
        number = 2.0

    f = gc.compile(lambda x: x * number + table.sum(), watch=watch)
    assert f(1.0) == 1.0
    table[7, 11] = 3.0
    assert f(1.0) == (4.0 if seen else 1.0)
    change()
    assert f(1.0) == (5.0 if seen else 1.0)


def test_a_function_that_is_not_watched_refuses_traced_arrays_that_leak():
    kept = []
    leak = gc.compile(lambda x: (kept.append(x), x)[1], watch="none")
    with pytest.raises(gc.GraphError, match="keeps a traced array"):
        leak(X)


def test_what_to_watch_is_one_of_three():
    with pytest.raises(gc.GraphError, match="watch must be"):
        gc.compile(lambda x: x, watch="sometimes")


class Thing:
    kind = 2.0

    def __init__(self):
        self.a = 1.0

    def method(self):
        return self.a

    @property
    def twice(self):
        return 2 * self.a

    @staticmethod
    def fixed():
        return 5.0

    def __call__(self, x):
        return x + self.a

    @gc.compile
    def compiled(self, x):
        return x * self.a


class Other(Thing):
    kind = 7.0

    def method(self):
        return 10 * self.a


def reads(thing):
    """Functions that read an object, and what they would not see if values alone were watched."""
    anew = lambda: setattr(thing, "__dict__", {"a": 5.0})
    define = lambda name, value: lambda: setattr(type(thing), name, value)
    other = lambda: setattr(thing, "__class__", Other)
    held = (thing,)
    return {
        "dict": (lambda x: x + thing.a, anew),
        "dict by name": (lambda x: x + getattr(thing, "a"), anew),  # noqa: B009
        "dict in a tuple": (lambda x: x + held[0].a, anew),
        "dict of what is called": (lambda x: thing(x), anew),
        "dict of self": (lambda x: thing.compiled(x), anew),
        "class": (lambda x: x + thing.method(), other),
        "class attribute": (lambda x: x + thing.kind, other),
        "method": (lambda x: x + thing.method(), define("method", lambda self: 77.0)),
        "property": (lambda x: x + thing.twice, define("twice", property(lambda self: 78.0))),
        "static": (lambda x: x + thing.fixed(), define("fixed", staticmethod(lambda: 79.0))),
        "call": (lambda x: thing(x), define("__call__", lambda self, x: x + 80.0)),
        "own method": (lambda x: x + thing.method(), lambda: setattr(thing, "method", lambda: 8.0)),
    }


@pytest.mark.parametrize("which", reads(None))
def test_objects_are_watched_whole(which):
    """Their dict, their class, and what the class defines."""
    function, change = reads(type("Thing", (Thing,), {})())[which]
    compiled = gc.compile(function)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), function(X))
    before = function(X)
    change()
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X), function(X))
    assert not np.array_equal(before, function(X))


def given():
    """Functions with defaults, partials, containers, and changes of these."""

    def scaled(x, k=2.0, *, w=1.0):
        return x * k + w

    part = functools.partial(lambda x, k: x * k, k=3.0)
    table = np.ones(3)
    bound = functools.partial(lambda t, x: x * t, table)
    some, queue, raw, packed = {1.0}, deque([1.0]), bytearray(b"1"), array.array("d", [1.0])
    inner = lambda x: scaled(x)
    return {
        "defaults": (inner, lambda: setattr(scaled, "__defaults__", (9.0,))),
        "keyword defaults": (inner, lambda: setattr(scaled, "__kwdefaults__", {"w": 5.0})),
        "one keyword default": (inner, lambda: scaled.__kwdefaults__.update(w=6.0)),
        "partial": (lambda x: part(x), lambda: part.keywords.update(k=8.0)),
        "array of a partial": (lambda x: bound(x), lambda: table.fill(8.0)),
        "set": (lambda x: x + sum(some), lambda: some.add(4.0)),
        "deque": (lambda x: x + queue[0], lambda: queue.appendleft(4.0)),
        "bytearray": (lambda x: x + raw[0], lambda: raw.__setitem__(0, 7)),
        "array": (lambda x: x + packed[0], lambda: packed.__setitem__(0, 7.0)),
    }


@pytest.mark.parametrize("which", given())
def test_defaults_partials_and_containers_are_watched(which):
    function, change = given()[which]
    compiled = gc.compile(function)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), function(X))
    change()
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X), function(X))


def test_numpys_own_functions_read_nothing_that_changes() -> None:
    """What those of linear algebra read are sixty names: a call took a millisecond."""
    for function in (np.linalg.svdvals, np.fft.fft, np.exp, np.sum):
        assert not baked(function)
    table = {"factor": 3}
    assert baked(np.vectorize(lambda x: x * table["factor"]))
