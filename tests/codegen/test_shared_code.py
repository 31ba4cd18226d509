"""A cache that is filled ahead has all that programs share."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen import gemm
from graphc.codegen.cache import Cache
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


def test_a_cache_that_keeps_nothing_is_not_filled(tmp_path, monkeypatch):
    """It was said to be."""
    plain, shared, full = (tmp_path / name for name in ("plain", "shared", "full"))
    plain.write_text("")
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (plain, shared, full):
        monkeypatch.setenv("GRAPHC_CACHE_DIR", str(folder))
        if folder is full:
            monkeypatch.setattr(Cache, "_write", no_space)
        with (
            pytest.warns(RuntimeWarning, match="graphc's cache is off"),
            pytest.raises(GraphError, match=r"does not hold (\d+) of \1 objects"),
        ):
            fill(Config.create(), [])


def no_space(store: Cache, path: Path, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_was_emptied_is_filled_again(tmp_path, monkeypatch):
    """Also by a process that still has it in memory."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    assert [fill(Config.create(), []) for _ in range(2)] == [(1, 0), (0, 1)]
    Cache(tmp_path).clear()
    assert fill(Config.create(), []) == (1, 0)
