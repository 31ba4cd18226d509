"""A cache that is filled ahead has all that programs share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen import gemm
from graphc.codegen.llvm.target import Target
from graphc.codegen.shared_code import fill
from graphc.config import Config
from graphc.errors import GraphError


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHC_CACHE_DIR", str(tmp_path_factory.mktemp("filled")))
        fill(Config.create(), ["f32", "f64"])
        yield


@pytest.mark.slow
@examples(40)
@given(
    dtype=st.sampled_from(["f4", "f8"]),
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    depth=st.integers(1, 1200),
    batch=st.sampled_from([(), (3,), (40,)]),
    turned=st.tuples(st.booleans(), st.booleans()),
    threads=st.integers(1, 3),
)
def test_nothing_of_a_product_is_left_to_compile(
    filled: None,
    dtype: str,
    rows: int,
    columns: int,
    depth: int,
    batch: tuple[int, ...],
    turned: tuple[bool, bool],
    threads: int,
) -> None:

    def product(x: Any, w: Any) -> Any:
        x, w = (np.swapaxes(v, -1, -2) if turn else v for v, turn in zip((x, w), turned))
        return x @ w

    shapes = [(rows, depth), (depth, columns)]
    shapes = [s[::-1] if turn else s for s, turn in zip(shapes, turned)]
    compiled = gc.compile(product, threads=threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "compile_core", refuse)
        compiled.executable(*(gc.spec((*batch, *shape), dtype) for shape in shapes))


def refuse(texts: list[str], inner: bool, target: Target) -> bytes:
    raise AssertionError(f"{texts[0][:2000]} is compiled, inner: {inner}")


def test_a_type_without_a_core_is_refused():
    with pytest.raises(GraphError, match="products of c64 have no core"):
        fill(Config.create(), ["c64"])
