"""Plain NumPy programs, compiled, give NumPy's values, dtypes and shapes."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 4, 6)).astype(np.float32)
INTS = RNG.integers(-9, 9, (4, 6))
Z = X + 1j * Y

PROGRAMS = {
    "methods": (
        lambda x: (
            *(x.sum(), x.mean(0), x.max(-1, keepdims=True), x.min(), x.std(1), x.var(ddof=1)),
            *(x.argmax(0), x.argmin(), x.cumsum(1), x.cumprod(0), x.clip(-1, 1), x.round(1)),
            *(x.astype("f8"), x.prod(1), (x > 0).any(), (x > 0).all(1)),
        ),
        (X,),
    ),
    "operators": (
        lambda x, y: (
            *(x + y, x - 1, 2 * x, x / y, x // y, x % y, -x, +x, abs(y), 1 - x, 1 / x, 7 % x),
            *(x**2, x**0.5, x**3, x**-1, x**y, 2**x, x > y, x == y, x != 1, (x > 0) & (y > 0)),
            *(~(x > 0), (x > 0) ^ (y > 0), *divmod(x, y)),
        ),
        (np.abs(X) + 0.5, Y),
    ),
    "integers": (
        lambda i: (
            *(i + 1, i * i, i // 3, i % 3, i / 2, i << 1, i >> 1, i & 3, i | 4, i ^ 1, ~i, -i),
            *(i**2, i**3, 2 ** np.abs(i), i.sum(), i.mean(), i.max(), np.bitwise_count(i)),
            *(i // 0, i % 0, np.gcd(i, 6), i > 2**40, i < 2**63),
        ),
        (INTS,),
    ),
    "small integers": (
        lambda i: (
            *(i + 1, i * i, i.sum(), i.prod(0), i.mean(), i.std(), np.sin(i), i / i, i.cumsum()),
            *(np.sqrt(np.abs(i)), i < 300, i == -1, i + np.uint8(1), np.hypot(i, i), i @ i.T),
        ),
        (INTS.astype(np.int8),),
    ),
    "complex": (
        lambda z: (
            *(z * z, z / z[0], np.abs(z), np.exp(z), np.log(z), np.sqrt(z), np.sin(z), np.cos(z)),
            *(np.tanh(z), np.tan(z), z.conj(), z.real, z.imag, np.angle(z), z.sum(), z.mean(0)),
            *(z.prod(1), z.std(), z.cumsum(), z**2, z**z, np.isnan(z), 1 / z, z == z, -z),
            *(np.linalg.norm(z), np.expm1(z), np.log1p(z), np.log2(z), np.sign(z)),
        ),
        (Z,),
    ),
    "selection": (
        lambda x: (
            *(np.where(x > 0, x, 0), np.where(x > 0, 1, 2), np.where(x > 0, 1.0, 0.0)),
            *(np.maximum(x, 0), np.fmin(x, 0.5), np.clip(x, None, 0.2), np.nan_to_num(x / 0)),
        ),
        (X,),
    ),
    "ufunc methods": (
        lambda x: (
            *(np.add.reduce(x), np.maximum.reduce(x, axis=1), np.add.accumulate(x)),
            *(np.logaddexp.reduce(x), np.minimum.accumulate(x, axis=1)),
        ),
        (X,),
    ),
    "statistics": (
        lambda x: (
            *(np.linalg.norm(x), np.linalg.norm(x, axis=1), np.average(x, axis=0), np.ptp(x)),
            *(np.median(x, axis=0), np.count_nonzero(x > 0), np.nansum(x), np.cov(x)),
            *(np.mean(x, axis=1, where=x > -9), np.max(x, initial=0.0), np.sum(x, dtype="f8")),
        ),
        (X,),
    ),
    "mixed types": (
        lambda x, i: (
            *(x + i, np.arctan2(x, i), np.maximum(x, i), np.hypot(i, i), np.copysign(x, -1.0)),
            *(np.logaddexp(x, i), np.power(x, 2), np.float_power(i, 2), x > i, np.divmod(i, 4)[1]),
        ),
        (X, INTS),
    ),
    "half precision": (
        lambda x: (np.exp(x), x.sum(), x.mean(0), np.tanh(x) + x, x.max(), x * 2, x.std()),
        (X.astype(np.float16),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_program_equals_numpy(name):
    program, operands = PROGRAMS[name]
    with np.errstate(all="ignore"):
        wants = [np.asarray(w) for w in program(*operands)]
    for position, (got, want) in enumerate(zip(gc.compile(program)(*operands), wants, strict=True)):
        where = f"result {position}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), where
        tolerance = 4e-3 if want.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=where)


def test_random_functions_compile_to_the_eager_values():
    def draw(key):
        r = gc.random
        return (
            *(r.normal(key, (3, 4)), r.uniform(key, (5,), "f64", -1, 2), r.split(key, 3)),
            *(r.fold_in(key, 3), r.permutation(key, 10), r.randint(key, (4,), 0, 10)),
            *(r.bernoulli(key, 0.3, (5,)), r.categorical(key, np.zeros((2, 5), np.float32))),
            *(r.bits(key, (3,), "u64"), r.exponential(key, (3,)), r.choice(key, 9, (3,))),
        )

    key = gc.random.key(3)
    for got, want in zip(gc.compile(draw)(key), draw(key), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_network_functions_compile_to_the_eager_values():
    def network(x):
        return (
            *(gc.softmax(x), gc.log_softmax(x, 0), gc.layer_norm(x), gc.rms_norm(x), gc.gelu(x)),
            *(gc.silu(x), gc.mish(x), gc.relu(x), gc.logsumexp(x, 1), gc.erf(x), gc.glu(x)),
            *(gc.attention(x, x, x, causal=True), gc.group_norm(x, 2), gc.mse(x, 0)),
        )

    for got, want in zip(gc.compile(network)(X), network(X), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
