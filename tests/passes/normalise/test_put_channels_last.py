"""Convolutions of 16 bits and bytes on images with channels last: what follows them, where it ends.

Stages are made for a CPU that multiplies pairs of bf16, whatever the tests run on.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from effort import rounds, slow

import graphc as gc
from graphc.ops.reference.interpreter import interpret
from graphc.passes.measured_error import result_error
from graphc.tuning import chosen

RNG = np.random.default_rng(5)
PAIRS = {"precision": "bf16", "target": "cpu:znver4"}
FREE = {  # whatever can be narrow and turned is
    "passes.narrowed_operations": 0.0,
    "passes.paired_operations": 0.0,
    "passes.turned_image": 0.0,
    "passes.window_terms": 0,
    "passes.window_outputs": 1,  # so few have depthwise convolutions alone
    "passes.winograd_tiles_if_narrow": 1 << 20,
}


def normal(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype("f4")


def graphs(function: Any, *given: Any, **options: Any) -> dict[str, Any]:
    """What each stage leaves behind."""
    stages = gc.compile(function, **{**PAIRS, **options}).stages(*given)
    return {name: value for name, value, _, _ in stages}


def count(graph: Any, name: str) -> int:
    inside = [r for node in graph.nodes for r in node.regions]
    return sum(node.op.name == name for node in graph.nodes) + sum(count(r, name) for r in inside)


def weights(outputs: int, inputs: int, *window: int) -> Any:
    return normal(outputs, inputs, *window) / np.float32(np.sqrt(inputs * np.prod(window)))


def test_a_chain_is_turned_once_before_and_once_behind() -> None:
    filters = [weights(64, 64, 3, 3) for _ in range(3)]
    bias = normal(64, 1, 1)

    def network(x: Any) -> Any:
        for w in filters:
            x = np.maximum(gc.conv(x, w, padding=1) + bias, 0)
        return x + 1

    x = normal(1, 64, 14, 14)
    made = graphs(network, x)["put_channels_last"]
    assert count(made, "conv_last") == 3 and count(made, "conv") == 0
    assert count(made, "transpose") == 2  # a bias has the same order either way
    wanted = interpret(graphs(network, x)["narrow_products"], [x])[0]
    assert result_error(wanted, interpret(made, [x])[0]) < 1e-5


def test_convolutions_that_save_less_than_turning_costs_stay() -> None:
    w, v = weights(64, 64, 1, 1), weights(48, 64, 1, 1)
    made = graphs(lambda x: gc.conv(gc.sin(gc.conv(x, w)), v), normal(1, 64, 28, 28))
    assert count(made["put_channels_last"], "conv_last") == 0
    long = [weights(256, 256, 1, 1) for _ in range(6)]

    def chain(x: Any) -> Any:
        x = gc.conv(x, w)  # behind the ends of a chain that pays
        x = gc.conv(x, weights(256, 64, 1, 1))
        for each in long:
            x = np.maximum(gc.conv(x, each), 0)
        return x.mean(axis=(2, 3), keepdims=True)

    made = graphs(chain, normal(1, 64, 14, 14))
    assert count(made["put_channels_last"], "conv_last") >= len(long)


def test_other_machines_and_odd_channels_keep_their_planes() -> None:
    w = weights(64, 33, 3, 3)
    with chosen(FREE):
        for options, channels in (({"target": "cpu:x86-64-v3"}, 34), ({}, 33)):
            given = normal(1, channels, 12, 12)
            weight = w if channels == 33 else weights(64, 34, 3, 3)
            made = graphs(lambda x, w=weight: gc.conv(x, w), given, **options)
            assert count(made.get("put_channels_last", made["dce"]), "conv_last") == 0


def test_resized_and_joined_images_keep_channels_last() -> None:
    """The neck of a detector: small images among large ones, as they are and between rows."""
    lateral, small = weights(64, 64, 1, 1), weights(16, 64, 3, 3)
    smooth, last = weights(32, 64, 3, 3), weights(32, 80, 3, 3)

    def network(x: Any) -> Any:
        top = gc.conv(gc.conv(x, lateral), small, stride=2, padding=1)
        x = np.maximum(gc.conv(x, lateral), 0)
        nearest = gc.interpolate(top, (28, 28), mode="nearest")
        half = gc.interpolate(gc.conv(x, smooth, stride=2, padding=1), (28, 28))
        joined = np.concatenate([nearest, half, half], axis=1)
        return gc.conv(joined, last, padding=1)

    x = normal(1, 64, 28, 28)
    made = graphs(network, x)
    turned = made["put_channels_last"]
    assert count(turned, "conv_last") == 4 and count(turned, "conv") == 0
    assert count(turned, "transpose") == 2
    wanted = interpret(made["narrow_products"], [x])[0]
    assert result_error(wanted, interpret(turned, [x])[0]) < 1e-5


class Network:
    """A random network of convolutions and what is done between them, and its argument."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.axes = int(self.pick(1, 2, 2, 2, 3))
        self.x = self.array(int(self.pick(1, 2, 3, 8)), 2 * int(self.pick(1, 2, 3)), *self.sides())
        self.layers = [self.layer() for _ in range(int(self.pick(2, 4, 6)))]
        self.seed = seed

    def pick(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def array(self, *dims: int) -> Any:
        return self.rng.standard_normal(dims).astype("f4")

    def sides(self) -> tuple[int, ...]:
        most = {1: 20, 2: 12, 3: 6}[self.axes]
        return tuple(int(self.rng.integers(4, most)) for _ in range(self.axes))

    def layer(self) -> str:
        """What it does; its numbers are drawn by `__call__`, which knows the shape."""
        kinds = "conv", "conv", "conv", "act", "add", "pool", "concat", "slice", "depthwise"
        return str(self.pick(*kinds, "lower", "filtered", "resize"))

    def __call__(self, x: Any) -> Any:
        self.rng = np.random.default_rng(self.seed + 1)
        for kind in ("conv", *self.layers):
            x = getattr(self, kind)(x)
        ends = [lambda x: x, lambda x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)]
        return self.pick(*ends, lambda x: np.transpose(x, (1, 0, *range(2, x.ndim))) * 2)(x)

    def conv(self, x: Any) -> Any:
        window = [int(self.rng.integers(1, 4)) for _ in range(self.axes)]
        stride, dilation = (int(self.pick(1, 1, 2)) for _ in range(2))
        groups = int(self.pick(1, 1, 1, 2)) if x.shape[1] % 2 == 0 else 1
        outputs = groups * int(self.pick(1, 2, 3, 4, 17, 32))
        w = self.array(outputs, x.shape[1] // groups, *window)
        w = w / np.float32(np.sqrt(w[0].size))
        pad = [((k - 1) * dilation, int(self.pick(0, 1, 2))) for k in window]
        made = gc.conv(x, w, stride=stride, dilation=dilation, groups=groups, padding=pad)
        return made + self.array(outputs, *(1,) * self.axes)

    def depthwise(self, x: Any) -> Any:
        window = [int(self.rng.integers(1, 6)) for _ in range(self.axes)]
        stride, dilation = int(self.pick(1, 1, 2)), int(self.pick(1, 1, 2))
        pad = [((k - 1) * dilation, int(self.pick(0, 1, 3))) for k in window]
        w = self.array(x.shape[1], 1, *window) / np.float32(np.sqrt(np.prod(window)))
        return gc.conv(
            x, w, stride=stride, dilation=dilation, groups=x.shape[1], padding=pad
        ) + self.array(x.shape[1], *(1,) * self.axes)

    def act(self, x: Any) -> Any:
        return self.pick(np.tanh, lambda x: np.maximum(x, 0), lambda x: x * np.float32(0.5))(x)

    def add(self, x: Any) -> Any:
        if self.pick(True, False):
            return x + np.tanh(self.conv_of_one(x))
        return x * self.array(x.shape[1], *(1,) * self.axes) + x

    def conv_of_one(self, x: Any) -> Any:
        return gc.conv(x, self.array(x.shape[1], x.shape[1], *(1,) * self.axes) / x.shape[1])

    def pool(self, x: Any) -> Any:
        kind = self.pick(gc.max_pool, gc.avg_pool)
        return kind(x, 2, stride=2) if min(x.shape[2:]) > 3 else x

    def concat(self, x: Any) -> Any:
        return np.concatenate([x, self.conv_of_one(x)], axis=int(self.pick(0, 1, 1, 2)))

    def slice(self, x: Any) -> Any:
        return x[:, :, 1:] if x.shape[2] > 3 else x

    def resize(self, x: Any) -> Any:
        """Rows and columns of x again, between others, and out of order; or a few channels."""
        way = self.pick("nearest", "linear", "picked", "picked")
        if way != "picked":
            sides = tuple(min(20, d * int(self.pick(1, 2)) + 1) for d in x.shape[2:])
            return gc.interpolate(x, sides, mode=way)
        axis = int(self.pick(0, 1, 2, 2, x.ndim - 1))
        count = x.shape[1] if axis == 1 else int(self.rng.integers(1, 9))
        places = self.rng.integers(-x.shape[axis], x.shape[axis], count)
        return np.take(x, places, axis=axis)

    def lower(self, x: Any) -> Any:
        return x + self.operand(x.shape[-int(self.rng.integers(1, x.ndim)) :], number_of(x))

    def operand(self, dims: tuple[int, ...], number: Any) -> Any:
        """What has these extents or 1, as it is computed, or with zeros around it, or a part."""
        dims = tuple(d if self.pick(True, True, False) else 1 for d in dims)
        way = self.pick("whole", "padded", "part")
        if way == "padded":
            low = [int(d > 1 and self.pick(True, False)) for d in dims]
            high = [int(d > 2 and self.pick(True, False)) for d in dims]
            inner = self.array(*(d - a - b for d, a, b in zip(dims, low, high))) * number
            return np.pad(inner, [*zip(low, high)])
        if way == "part":
            return (self.array(*(d + 1 for d in dims)) * number)[(slice(1, None),) * len(dims)]
        return self.array(*dims) * number

    def filtered(self, x: Any) -> Any:
        """Convolutions by corners of images, of all channels and of each."""
        corner = (slice(None), slice(None), *[slice(3)] * self.axes)
        if self.pick(True, False):
            return self.conv_by(x, x[corner])
        images, channels = x.shape[:2]
        many = gc.conv(x, self.array(images, channels, *(1,) * self.axes) / channels)
        one = gc.conv(x, self.array(1, channels, *(1,) * self.axes) / channels)
        return self.conv_by(many, one[corner], groups=images)

    def conv_by(self, x: Any, w: Any, groups: int = 1) -> Any:
        w = np.tanh(w) / np.float32(np.sqrt(w[0].size))
        return gc.conv(x, w, padding=[(k - 1, 0) for k in w.shape[2:]], groups=groups)


def number_of(x: Any) -> Any:
    """A number that is not known before an array is."""
    return x[(0,) * x.ndim]


@pytest.mark.parametrize("seed", [*range(2), *map(slow, range(2, rounds(10)))])
def test_random_networks_are_what_they_were(seed: int) -> None:
    network = Network(seed)
    with chosen(FREE):
        made = graphs(network, network.x)
        wanted = interpret(made["narrow_products"], [network.x])[0]
        assert result_error(wanted, interpret(made["put_channels_last"], [network.x])[0]) < 1e-5
        for threads in (1, 2):
            ran = gc.compile(network, precision="bf16", threads=threads)(network.x)
            assert result_error(wanted, ran) < 0.03  # f32 on other machines


def test_most_random_networks_have_images_with_channels_last() -> None:
    with chosen(FREE):
        made = [graphs(network, network.x) for network in map(Network, range(8))]
    assert sum(count(stages["put_channels_last"], "conv_last") > 0 for stages in made) >= 5


class OfBytes(Network):
    """The same of quantised numbers, which are whole until they are scaled."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        channels = 4 * int(self.pick(1, 2, 3))
        self.x = self.array(self.x.shape[0], channels, *self.x.shape[2:])

    def conv(self, x: Any) -> Any:
        window = [int(self.rng.integers(1, 4)) for _ in range(self.axes)]
        return self.products(x, 4 * int(self.pick(1, 2, 5, 8)), window, int(self.pick(1, 1, 2)))

    def conv_of_one(self, x: Any) -> Any:
        return self.products(x, x.shape[1], [1] * self.axes)

    def depthwise(self, x: Any) -> Any:
        window = [int(self.rng.integers(1, 6)) for _ in range(self.axes)]
        channels, stride = x.shape[1], int(self.pick(1, 1, 2))
        return self.products(x, channels, window, stride, groups=channels)

    def products(
        self, x: Any, outputs: int, window: list[int], stride: int = 1, groups: int = 1
    ) -> Any:
        """A convolution by whole weights of bytes with a zero, of which zeros are around them."""
        numbers = self.bytes_of(x)
        w = self.rng.integers(-127, 128, (outputs, x.shape[1] // groups, *window), np.int32)
        return self.scaled(numbers, w, stride, groups)

    def conv_by(self, x: Any, w: Any, groups: int = 1) -> Any:
        whole = np.clip(np.rint(w * np.float32(16)), np.float32(-127), np.float32(127))
        return self.scaled(self.bytes_of(x), whole.astype(np.int8).astype(np.int32), 1, groups)

    def bytes_of(self, x: Any) -> Any:
        """Whole numbers less a zero."""
        zero = np.float32(self.pick(0, 3, 128))
        whole = np.clip(np.rint(x * np.float32(16)) + zero, np.float32(0), np.float32(255))
        return whole.astype(np.uint8).astype(np.int32) - zero.astype(np.int32)

    def scaled(self, numbers: Any, w: Any, stride: int, groups: int) -> Any:
        outputs, _, *window = w.shape
        pad = [(k - 1, int(self.pick(0, 1, 2)) if k > 1 else 0) for k in window]
        sums = gc.conv(numbers, w, stride=stride, padding=pad, groups=groups)
        size = self.array(outputs, *(1,) * self.axes) / np.float32(200 * np.sqrt(w[0].size))
        return sums.astype(np.float32) * size + self.array(outputs, *(1,) * self.axes)

    def act(self, x: Any) -> Any:
        return self.pick(lambda x: np.maximum(x, 0), lambda x: x * np.float32(0.5))(x)

    def add(self, x: Any) -> Any:
        return x + self.conv_of_one(x)

    def pool(self, x: Any) -> Any:
        return gc.max_pool(x, 2, stride=2) if min(x.shape[2:]) > 3 else x


@pytest.mark.parametrize("seed", [*range(2), *map(slow, range(2, rounds(10)))])
def test_random_networks_of_bytes_are_what_they_were(seed: int) -> None:
    network = OfBytes(seed)
    with chosen(FREE):
        made = graphs(network, network.x, precision="f32")
        wanted = interpret(made["choose_integers"], [network.x])[0]
        assert count(made["put_channels_last"], "conv_last") > 0
        assert result_error(wanted, interpret(made["put_channels_last"], [network.x])[0]) < 1e-6
        for threads in (1, 2):
            ran = gc.compile(network, threads=threads)(network.x)
            assert result_error(wanted, ran) < 1e-5


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("kind", [Network, OfBytes])
def test_images_are_filters_of_others(kind: type[Network], groups: int) -> None:
    made_by = kind(0)
    made_by.axes = 2

    def network(x: Any) -> Any:
        made_by.rng = np.random.default_rng(1)
        x = y = made_by.act(made_by.conv_of_one(x))
        if groups == 8:
            y = made_by.act(made_by.conv_of_one(x))[:, :1]
        return made_by.conv_of_one(made_by.conv_by(x, y, groups=groups))

    x, precision = made_by.array(8, 8, 5, 6), "f32" if kind is OfBytes else "bf16"
    with chosen(FREE):
        made = graphs(network, x, precision=precision)
        ran = gc.compile(network, precision=precision)(x)
    before = "choose_integers" if kind is OfBytes else "narrow_products"
    (wanted,) = interpret(made[before], [x])
    assert count(made["put_channels_last"], "conv_last") == 3
    assert count(made["put_channels_last"], "conv_windows_last") == (groups == 8)
    assert result_error(wanted, interpret(made["put_channels_last"], [x])[0]) < 1e-5
    assert result_error(wanted, ran) < (1e-5 if kind is OfBytes else 0.03)


@pytest.mark.parametrize("kind", [Network, OfBytes])
@pytest.mark.parametrize("seed", range(rounds(2)))
def test_networks_of_two_ranks_share_operands(kind: type[Network], seed: int) -> None:
    flat, deep = kind(seed), kind(seed)
    flat.axes, deep.axes = 2, 3
    channels, *sides = dims = (8, *(int(flat.rng.integers(2, 7)) for _ in range(2)))

    def network(x: Any, z: Any) -> Any:
        flat.rng = deep.rng = np.random.default_rng(seed)
        ranks = (int(flat.pick(1, 2, 3, 3)) for _ in range(3))
        shared = [flat.operand(dims[-rank:], number_of(x)) for rank in ranks]
        for operand in shared:
            x = flat.act(flat.conv_of_one(x) + operand)
        for operand in (x, *shared, x):  # an image of one, too
            z = deep.act(deep.conv_of_one(z) + operand)
        return x, deep.conv_of_one(z)

    given = [flat.array(1, 8, *sides), deep.array(2, 8, channels, *sides)]
    integers = kind is OfBytes
    before = "choose_integers" if integers else "narrow_products"
    with chosen(FREE):
        made = graphs(network, *given, precision="f32" if integers else "bf16")
        assert count(made["put_channels_last"], "conv_last") == 9
        ran = gc.compile(network, precision="f32" if integers else "bf16")(*given)
    wanted = interpret(made[before], given)
    for want, turned, own in zip(wanted, interpret(made["put_channels_last"], given), ran):
        assert result_error(want, turned) < 1e-5
        assert result_error(want, own) < (1e-5 if integers else 0.03)


def test_depthwise_convolutions_of_bytes_follow() -> None:
    filters = [RNG.integers(-127, 128, (64, 64, 1, 1), np.int32) for _ in range(3)]
    windows = [RNG.integers(-127, 128, (64, 1, k, k), np.int32) for k in (5, 3)]

    def bytes_of(x: Any) -> Any:
        whole = np.rint(x.astype(np.float32) * np.float32(0.002))
        return np.clip(whole, np.float32(0), np.float32(255)).astype(np.uint8).astype(np.int32)

    def network(x: Any) -> Any:
        x = bytes_of(gc.conv(x.astype(np.int32) - 7, filters[0]))
        for k in (0, 1):
            ways = {"padding": 2 - k, "stride": 1 + k, "groups": 64}
            x = bytes_of(gc.conv(x - 3, windows[k], **ways))
            x = bytes_of(gc.conv(x, filters[1 + k]))
        return x

    x = RNG.integers(0, 256, (2, 64, 15, 14), np.uint8)
    with chosen(FREE):
        made = graphs(network, x, precision="f32")
        assert count(made["put_channels_last"], "conv_last") == 3
        assert count(made["put_channels_last"], "conv_windows_last") == 2
        (wanted,) = interpret(made["trace"], [x])
        np.testing.assert_array_equal(interpret(made["put_channels_last"], [x])[0], wanted)
        for threads in (1, 2):
            np.testing.assert_array_equal(gc.compile(network, threads=threads)(x), wanted)


def test_bytes_without_bundles_keep_their_planes() -> None:
    def network(x: Any, w: Any) -> Any:
        return gc.conv(x.astype(np.int32), w.astype(np.int32))

    image, signed = RNG.integers(0, 256, (1, 8, 12, 12), np.uint8), np.int8
    filters = RNG.integers(-128, 128, (32, 8, 3, 3), signed)
    with chosen(FREE):
        for x, w, lasts in (
            (image, filters, 1),
            (image[:, :6], filters[:, :6], 0),  # three bundles in two pixels
            (image.astype(signed), filters, 0),  # what is too much would be summed up apart
        ):
            made = graphs(network, x, w, precision="f32")
            assert count(made["put_channels_last"], "conv_last") == lasts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(6)))
def test_gradients_of_random_networks(seed: int) -> None:
    network = Network(seed)

    def loss(x: Any) -> Any:
        return (network(x) ** 2).sum()

    step = gc.grad(loss)
    with chosen(FREE):
        made = graphs(step, network.x)
        wanted = interpret(made["narrow_products"], [network.x])[0]
        assert result_error(wanted, interpret(made["put_channels_last"], [network.x])[0]) < 1e-4


def test_images_of_16_bits_are_turned_and_joined_as_such() -> None:
    w = weights(64, 96, 3, 3).astype(ml_dtypes.bfloat16)
    x, y = (normal(2, c, 14, 14).astype(ml_dtypes.bfloat16) for c in (32, 64))

    def network(x: Any, y: Any) -> Any:
        joined = np.concatenate([x, np.maximum(y, 0)], axis=1).astype("f4")
        return gc.conv(joined, w.astype("f4"), padding=1)

    with chosen(FREE):
        made = graphs(network, x, y)
        assert count(made["put_channels_last"], "conv_last") == 1
        assert "bf16[2,14,14,96]" in {str(node.type) for node in made["put_channels_last"].nodes}
        wanted = interpret(made["cse"], [x, y])[0]
        assert result_error(wanted, interpret(made["put_channels_last"], [x, y])[0]) < 1e-5
        assert result_error(wanted, gc.compile(network, precision="bf16")(x, y)) < 1e-5


def test_depthwise_convolutions_follow() -> None:
    filters = [weights(64, 64, 1, 1) for _ in range(4)]
    windows = [weights(64, 1, 5, 5), weights(64, 1, 3, 3)]

    def network(x: Any) -> Any:
        x = np.maximum(gc.conv(gc.conv(x, filters[0]), filters[1]), 0)
        for k in (0, 1):
            x = gc.conv(x, windows[k], padding=2 - k, stride=1 + k, groups=64)
            x = np.maximum(gc.conv(x, filters[2 + k]), 0)
        return x

    x = normal(2, 64, 15, 14)
    with chosen(FREE):
        made = graphs(network, x)
        assert count(made["put_channels_last"], "conv_windows_last") == 2
        assert count(made["put_channels_last"], "transpose") == 2
        wanted = interpret(made["narrow_products"], [x])[0]
        assert result_error(wanted, interpret(made["put_channels_last"], [x])[0]) < 1e-5
        for threads in (1, 2):
            ran = gc.compile(network, precision="bf16", threads=threads)(x)
            assert result_error(wanted, ran) < 0.03


def test_open_images() -> None:
    filters = [weights(64, 64, 3, 3) for _ in range(3)]

    def network(x: Any) -> Any:
        for w in filters:
            x = np.maximum(gc.conv(x, w, padding=1), 0)
        return x

    function = gc.compile(network, precision="bf16", sizes={"x": ("n", 64, "h", "w")})
    exact = gc.compile(network)
    for shape in ((1, 64, 14, 14), (3, 64, 9, 31), (2, 64, 40, 1)):
        x = normal(*shape)
        assert result_error(exact(x), function(x)) < 0.03
    assert len(function.compiles) == 1
