"""Contractions that cuBLAS can make as well: which ones are, and what their descriptions mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_files import edited
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from product_cases import F64, PRODUCTS, TOLERANCES, B, Q, R, W, X, f32, numpy_gelu, swapped, values
from product_reference import DTYPES, image_of, image_of_graph, products_of, run

import graphc as gc
from graphc.base.record import replace
from graphc.errors import GraphError
from graphc.ops.reference.interpreter import interpret
from graphc.runtime.cuda.gemm import Gemm, read
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.load.table import rows

OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "integers": (lambda x, w: x @ w, (gc.spec((32, 64), "i32"), gc.spec((64, 48), "i32"))),
    "narrower than its sums": (lambda x, w: (x @ w).astype(np.float16), (X, W)),
    "another activation": (lambda x, w: np.tanh(x @ w), (X, W)),
    "gelu of erf": (lambda x, w: gc.nn.gelu(x @ w), (X, W)),
    "gelu of erf in NumPy": (
        lambda x, w: 0.5 * (y := x @ w) * (1 + gc.erf(y / np.float32(np.sqrt(2)))),
        (X, W),
    ),
    "leaky relu": (lambda x, w: gc.nn.leaky_relu(x @ w), (X, W)),
    "relu that hides NaN": (lambda x, w: np.where((y := x @ w) > 0, y, np.float32(0)), (X, W)),
    "silu": (lambda x, w: gc.nn.silu(x @ w), (X, W)),
    "relu and a little": (lambda x, w: np.maximum(x @ w, 0) + np.float32(1e-6), (X, W)),
    "bounded from below": (lambda x, w: np.maximum(x @ w, np.finfo(np.float32).tiny), (X, W)),
    "bounded from above": (lambda x, w: np.clip(x @ w, 0, np.float32(2e4)), (X, W)),
    "bounded by what there is": (lambda x, w: np.clip(x @ w, 0, np.finfo(np.float32).max), (X, W)),
    "a little leaky": (lambda x, w: np.maximum(y := x @ w, y * np.float32(1e-10)), (X, W)),
    "relu from a threshold on": (
        lambda x, w: np.where((y := x @ w) > 1e-6, y, y * np.float32(0)),
        (X, W),
    ),
    "gelu and a little": (lambda x, w: numpy_gelu(x @ w) + np.float32(1e-6), (X, W)),
    "gelu that is bounded": (lambda x, w: np.minimum(numpy_gelu(x @ w), np.float32(2e4)), (X, W)),
    "a factor that is no f32": (
        lambda x, w: (x @ w) * np.float32(1e-30) * np.float32(1e-30),
        (X, W),
    ),
    "relu and something else": (lambda x, w, b: np.maximum(x @ w, 0) + b, (X, W, B)),
    "relu that is scaled": (lambda x, w: np.maximum(x @ w, 0) * 2, (X, W)),
    "bias of f64": (lambda x, w, b: x @ w + b, tuple(F64)),
    "bias of rows": (lambda x, w, b: x @ w + b[:, None], (X, W, f32(32))),
    "two biases": (lambda x, w, b, c: x @ w + b + c, (X, W, f32(48), f32(32, 1))),
    "scaled after the bias": (lambda x, w, b: 2 * (x @ w + b), (X, W, B)),
    "bound that is not 0": (lambda x, w: np.maximum(x @ w, 1), (X, W)),
    "less a bias": (lambda x, w, b: x @ w - b, (X, W, B)),
    "less the product and a bias": (lambda x, w, r, b: b - (r + x @ w), (X, W, R, B)),
    "rows of a batch added": (lambda q, k, b: q @ swapped(k) + b, (Q, Q, f32(4, 1, 32))),
    "two results": (lambda x, w: ((y := x @ w), np.tanh(y)), (X, W)),
    "every other column": (lambda x, w: x[:, ::2] @ w[:32], (X, W)),
    "a convolution": (lambda x, w: gc.conv(x, w), (f32(1, 16, 8, 8), f32(24, 16, 3, 3))),
    "two batches": (
        lambda q, k: np.einsum("bqhd,bkhd->bhqk", q, k),
        (f32(2, 32, 4, 64), f32(2, 32, 4, 64)),
    ),
}


def check(function: Callable[..., Any], specs: Any, seed: int = 0, **options: Any) -> list[Gemm]:
    """All kernels of a program are products, and computed as those they are what they should."""
    image = image_of(function, *specs, **options)
    random = np.random.default_rng(seed)
    arrays = [values(spec, random) for spec in specs]
    (found,) = run(image, arrays)
    (wanted,) = interpret(gc.compile(function).graph(*specs), arrays)
    slack = TOLERANCES[image.results[0].dtype] * max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=0, atol=slack)
    return list(image.products.values())


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    function, specs, text = PRODUCTS[name]
    (product,) = check(function, specs)
    assert str(product) == text
    assert read(json.loads(json.dumps(product.listed))) == product


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_product(name: str) -> None:
    function, specs = OTHERS[name]
    assert not products_of(function, *specs)


@pytest.mark.parametrize(("kind", "bits"), [("f32", "i32"), ("f32", "u32")])
def test_bits_are_no_activation(kind: str, bits: str) -> None:
    graph = gc.parse(f"""gir 1
graph @f(%0 x: {kind}[32,64], %1 w: {kind}[64,48]) {{
  %2 = matmul(%0, %1) : {kind}[32,48]
  %3 = bitcast(%2) {{dtype={bits}}} : {bits}[32,48]
  %4 = bitcast(%3) {{dtype={kind}}} : {kind}[32,48]
  return %4
}}
""")
    assert not image_of_graph(graph, opt=1).products


@pytest.mark.parametrize(
    "options", [{"parity": True}, {"fast_math": False}, {"check_finite": True}]
)
def test_sums_in_order_are_no_products(options: dict[str, bool]) -> None:
    assert not products_of(lambda x, w: x @ w, X, W, **options)


# ------------------------------------------------------------------------------------ random ones


@st.composite
def operands(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Specs of two factors, and how they are made matrices: axes in any order, parts of them."""
    batch = draw(st.sampled_from([(), (), (2,), (3, 2)]))
    m, n = (draw(st.sampled_from([1, 2, 5, 8, 17])) for _ in range(2))
    k = draw(st.sampled_from([5, 8, 19]))
    specs, views = [], []
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    for shape in ((*batch, m, k), (*batch, k, n)):
        axes = draw(st.permutations(range(len(shape))))
        more = [draw(st.sampled_from([0, 0, 0, 1, 3])) for _ in shape]
        starts = [draw(st.integers(0, extra)) for extra in more]
        whole = [extent + extra for extent, extra in zip(shape, more)]
        specs.append(gc.spec(tuple(whole[a] for a in np.argsort(axes)), dtype))
        cut = tuple(slice(at, at + extent) for at, extent in zip(starts, shape))
        views.append((tuple(np.argsort(np.argsort(axes))), cut))
    return specs, views


def is_plain(spec: Any, view: Any) -> bool:
    """Are the matrices of a view what BLAS takes: one of two strides is 1, a batch is one dim?"""
    made = np.empty(spec.shape, np.int8).transpose(view[0])[view[1]]
    *batch, (rows, down), (columns, along) = zip(made.shape, made.strides)
    upright = (columns == 1 or along == 1) and (rows == 1 or down >= columns)
    lying = (rows == 1 or down == 1) and (columns == 1 or along >= rows)
    return (upright or lying) and (len(batch) < 2 or batch[0][1] == batch[1][0] * batch[1][1])


@examples(20)
@given(operands(), st.sampled_from(["", "bias", "residual", "scaled", "relu"]), st.integers(0, 99))
def test_random_products(made: tuple[list[Any], list[Any]], epilogue: str, seed: int) -> None:
    specs, views = made

    def function(x: Any, w: Any, *more: Any) -> Any:
        x, w = (v.transpose(axes)[cut] for v, (axes, cut) in zip((x, w), views))
        product = x @ w
        for extra in more:
            product = product + extra
        if epilogue == "scaled":
            product = product * np.asarray(0.5, product.dtype)
        return np.maximum(product, 0) if epilogue == "relu" else product

    dims = gc.compile(function).graph(*specs).results[0].type.dims
    shapes = {"bias": dims[-1:], "residual": dims}
    given_specs = [
        *specs,
        *(gc.spec(shapes[epilogue], specs[0].dtype) for _ in [0] if epilogue in shapes),
    ]
    image = image_of(function, *given_specs)
    for product in image.products.values():
        product.check(product.sizes)
    double = str(specs[0].dtype) == "f64" and epilogue in ("bias", "relu")
    if all(map(is_plain, specs, views)) and min(dims[-2:]) > 1 and not double:
        assert image.products
    if len(image.products) == len(image.kernels) == 1:
        check(function, given_specs, seed)


# ------------------------------------------------------------------------------------ damaged ones


def changed(record: Any, **fields: Any) -> Any:
    """A record with other fields; those of a matrix are called left_lead, ..."""
    values = {name: getattr(record, name) for name in record.__match_args__}
    for name, value in fields.items():
        matrix, _, part = name.partition("_")
        values[matrix] = changed(values[matrix], **{part: value}) if part else value
    return type(record)(**values)


@pytest.mark.parametrize(
    "fields",
    [
        {"calls": 0}, {"calls": 3}, {"element": "i8"}, {"result": "f16"}, {"batch": 0},
        {"batch": 2, "target_step": 1 << 40}, {"rows": 49}, {"rows": 1 << 31}, {"columns": -1},
        {"depth": 65}, {"left_operand": 4}, {"left_operand": -1}, {"left_offset": -1},
        {"left_offset": 1}, {"left_lead": 47}, {"left_lead": 1 << 60}, {"right_step": -1},
        {"left_transposed": True}, {"target_offset": 1}, {"bias_lead": 47}, {"bias_offset": 1},
        {"target_transposed": True}, {"bias_transposed": True}, {"activation": "tanh"},
        {"scale": float("inf")}, {"scale": float("nan")}, {"scale": 0.0},
        {"sizes": (8192, 12288, 192)}, {"sizes": (8192, 12288, 192, 6145)},
        {"sizes": (-1, 12288, 192, 6144)}, {"element": "f64", "result": "f64"},
    ],
)  # fmt: skip
def test_numbers_that_lead_astray(fields: dict[str, Any]) -> None:
    image = image_of(lambda x, w, b: x @ w + b, X, W, B)
    ((row, product),) = image.products.items()
    with pytest.raises(GraphError, match=r"product of matrices|calls before"):
        replace(image, products={row: changed(product, **fields)}).check()


def test_rows_that_are_none() -> None:
    split = image_of(lambda x, w: (x @ w)[:, :1] + 0, f32(7, 4096), f32(4096, 48))
    ((last, product),) = split.products.items()
    assert product.calls == 2
    first = next(row for row in rows(split.table.tolist()))
    assert first < last
    for products in ({first: product}, {last + 1: product}, {-5: product}, {1 << 40: product}):
        with pytest.raises(GraphError, match="no product of matrices can stand"):
            replace(split, products=products).check()
    twice = {last: product, first: changed(product, calls=1)}
    with pytest.raises(GraphError, match="product of matrices"):
        replace(split, products=twice).check()
    with pytest.raises(GraphError, match="no product of matrices can stand"):
        replace(split, triple="x86_64").check()


def test_saved_with_the_program(tmp_path: Path) -> None:
    for function, specs, _ in PRODUCTS.values():
        image = image_of(function, *specs)
        gcx_writer.save(image, tmp_path / "f.gcx")
        assert dict(gcx_files.read(tmp_path / "f.gcx").products) == dict(image.products)


@pytest.mark.parametrize("value", ["1", 1.0, None, True, [1], -7, 1 << 70])
@pytest.mark.parametrize("place", [*range(4, 14), (8, 1), (9, 4), (14, 0)])
def test_damaged_files(tmp_path: Path, place: Any, value: Any) -> None:
    path = tmp_path / "f.gcx"
    gcx_writer.save(image_of(lambda x, w, b: x @ w + b, X, W, B), path)

    def change(_: Any, metadata: Any) -> None:
        found = metadata["products"][0][1]
        *outer, last = place if isinstance(place, tuple) else (place,)
        for index in outer:
            found = found[index]
        found[last] = value

    edited(path, change)
    harmless = (place, repr(value)) in ((10, "None"), (11, "None"), (13, "1.0"))
    if harmless:  # as it was, or without a bias
        gcx_files.read(path)
        return
    with pytest.raises(GraphError, match="damaged"):
        gcx_files.read(path)
