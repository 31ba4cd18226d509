"""gc.random: the published test vectors, the kernel's bits against NumPy, and the distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from effort import crossed
from expr_numpy import Operands, evaluate

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS, Operand, Use
from graphc.ir.types import U32, dtype, tensor
from graphc.ops.random import random
from graphc.ops.random.threefry import threefry, threefry_reference
from graphc.ops.reference.interpreter import interpret

# Random123's kat_vectors for threefry2x32, 20 rounds: counter, key, result.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
words = lambda pair: np.array(pair, np.uint32)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    made = threefry_reference(words(key), words(counter)[:1], words(counter)[1:])
    assert tuple(int(m[0]) for m in made) == result
    b = Operands()
    operands = [b.operand(words([w]), U32) for w in (*key, *counter)]
    made = threefry(tuple(operands[:2]), tuple(operands[2:]))
    assert tuple(int(evaluate(b, m)[0]) for m in made) == result


def element_by_element(op, arrays, attrs, shape):
    """Every element of a Compute op through its index lambda."""
    attrs = op.coerce(attrs)
    types = tuple(tensor(dtype(a.dtype), a.shape) for a in arrays)

    node = Use(op, tuple(map(Operand, types)), attrs, op.result_type(types, attrs))
    made = np.empty(shape, node.type.dtype.numpy)
    for place in np.ndindex(*shape):
        b = Operands()
        read = lambda k, index, b=b: b.operand(arrays[k][tuple(i.data for i in index)], U32)
        element = op.lower.element(b, node, read, tuple(b.integer(i) for i in place))
        made[place] = evaluate(b, element)
    return made


@pytest.mark.parametrize("name", ["random_bits", "random_split", "random_fold"])
def test_index_lambda_equals_reference(name):
    op = OPS[name]
    for sample in op.samples():
        if sample.good:
            arrays = [np.asarray(o) for o in sample.operands]
            want = op.reference(*arrays, **op.coerce(sample.attrs).values_dict)
            got = element_by_element(op, arrays, sample.attrs, want.shape)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dims", "opt"), crossed([(4, 7), (3, 1, 5), (2, 3, 4), (1, 6), (5, 1), (2, 0, 3), ()], [2, 0])
)
def test_numbers_meet_others_of_any_layout(dims, opt):
    """One loop goes over the axes where nothing keeps them apart: sums, broadcasts, other orders of
    axes and several keys do."""
    keys = np.arange(8, dtype=np.uint32).reshape(2, 2, 2)
    x = np.random.default_rng(0).standard_normal(dims)

    def function(keys, x):
        key, flipped = keys[0, 0], x.T
        made = [random.uniform(key, dims, dtype="f64") + x, random.bits(key, flipped.shape) + 1]
        made += [random.normal(key, flipped.shape, dtype="f64") * flipped]
        made += [random.uniform(key, dims[k:], dtype="f64") * x for k in range(len(dims))]
        made += [
            (random.uniform(key, dims, dtype="f64") * x).sum(axis, keepdims=len(dims) > 2)
            for axis in range(len(dims))
        ]
        each = gc.vmap(gc.vmap(lambda key: random.uniform(key, dims, dtype="f64") + x))
        return [*made, each(keys), random.uniform(key, dims).reshape(-1)[::-1]]

    compiled = gc.compile(function, opt=opt)
    graph = compiled.graph(keys, x)
    for got, want in zip(compiled(keys, x), interpret(graph, [keys, x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_shapes_of_one_size_share_a_kernel():
    def symbols(dims):
        made = gc.compile(lambda key: random.uniform(key, dims)).executable(KEY)
        return {name for _, names in made.image.objects for name in names}

    assert symbols((4, 7)) == symbols((28,)) == symbols((2, 1, 14))


def test_keys_must_be_keys():
    with pytest.raises(GraphError, match="key"):
        random.uniform(np.zeros(2, np.float32), (3,))


KEY = random.key(42)
MANY = 100_000


def test_keys():
    assert random.key(2**40 + 5).tolist() == [2**8, 5]
    assert random.key(-1).tolist() == [2**32 - 1] * 2
    pair = random.split(KEY)
    assert pair.shape == (2, 2)
    folded = [random.fold_in(KEY, number) for number in (0, 1)]
    assert len({tuple(k) for k in (KEY, *pair, *folded)}) == 5
    np.testing.assert_array_equal(random.key(np.int64(7)), random.key(7))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_uniform(name):
    x = random.uniform(KEY, (MANY,), name).astype(np.float64)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / 12) < 0.002
    y = random.uniform(KEY, (50,), name, -3.0, 5.0).astype(np.float64)
    assert y.min() >= -3
    assert y.max() <= 5


def test_normal():
    x = random.normal(KEY, (MANY,)).astype(np.float64)
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01
    assert abs((np.abs(x) < 1).mean() - math.erf(math.sqrt(0.5))) < 0.005
    assert np.isfinite(x).all()
    y = random.truncated_normal(KEY, -1.0, 2.0, (1000,))
    assert y.min() >= -1
    assert y.max() <= 2


def test_other_distributions():
    assert abs(random.exponential(KEY, (MANY,)).mean() - 1) < 0.02
    assert abs(random.gumbel(KEY, (MANY,)).mean() - np.euler_gamma) < 0.02
    assert abs(random.bernoulli(KEY, 0.3, (MANY,)).mean() - 0.3) < 0.01
    assert random.bernoulli(KEY, np.zeros((2, 3))).tolist() == [[False] * 3] * 2
    drawn = random.randint(KEY, (MANY,), -2, 3)
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(np.bincount(drawn + 2) / MANY, 0.2, atol=0.01)
    logits = np.log(np.array([0.1, 0.2, 0.7]))
    drawn = random.categorical(KEY, logits, shape=(20_000,))
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, [0.1, 0.2, 0.7], atol=0.02)


def test_permutations():
    order = random.permutation(KEY, 100)
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() != list(range(100))
    x = np.arange(12).reshape(3, 4)
    shuffled = random.permutation(KEY, x, axis=1)
    assert sorted(shuffled[0].tolist()) == [0, 1, 2, 3]
    assert len(set(random.choice(KEY, 10, (7,), replace=False).tolist())) == 7
    assert random.choice(KEY, x, (5,)).shape == (5, 4)


def test_draws_of_an_open_count_are_those_of_a_number() -> None:
    def drawn(key: Any, x: Any) -> Any:
        n = x.shape[0]
        return (
            random.choice(key, x, (3,), replace=False),
            random.choice(key, n, (n // 2,), replace=False),
            random.choice(key, n, (4,)),
            random.randint(key, (9,), -n, n),
        )

    compiled = gc.compile(drawn)
    for n in (5, 9, 30, 3, 100):
        x = np.arange(n) * 2.0
        made = compiled(KEY, x)
        for found, want in zip(made, gc.compile(drawn, sizes="exact")(KEY, x), strict=True):
            np.testing.assert_array_equal(found, want)
        assert len(set(made[0].tolist())) == 3 and np.isin(made[0], x).all()
    assert len(compiled.compiles) == 2
    with pytest.raises(gc.GraphError, match="cannot draw 3 of 2 without replacement"):
        compiled(KEY, np.arange(2) * 2.0)


@pytest.mark.parametrize("count", [1, 2, 1000, 65_535, 65_536, 1 << 40])
def test_integers_are_remainders_of_64_bits(count: int) -> None:
    def drawn(seed: Any) -> Any:
        key = gc.random.key(seed)
        bits = gc.random.bits(key, (3000,), "u64")
        return gc.random.randint(key, (3000,), -5, count - 5, "i64"), bits

    made, bits = gc.compile(drawn)(np.array(11))
    np.testing.assert_array_equal(made, (bits % np.uint64(count)).astype(np.int64) - 5)
