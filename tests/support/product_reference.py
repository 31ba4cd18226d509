"""What a `Gemm` means, computed by NumPy on memory of the host: it stands in for cuBLASLt.

Also programs with products, compiled without the compilers of kernels: stand-ins run them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.codegen.build import build_image
from graphc.codegen.gpu.build import CudaCompiler, packed
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.passes import pipeline
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.gemm import Gemm, Matrix
from graphc.runtime.load.program import Image, numpy_dtype
from graphc.runtime.load.table import CALL, calls_until, operands_of, rows

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def matrices(
    product: Gemm, matrix: Matrix, element: str, rows: int, columns: int, address: int
) -> np.ndarray[Any, Any]:
    """The matrices (batch, rows, columns) in memory, writable."""
    dtype = numpy_dtype(element)
    count = product.extent(matrix, rows, columns)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(
        address + matrix.offset * dtype.itemsize
    )
    strides = [dtype.itemsize * step for step in (matrix.step, 1, matrix.lead)]
    flat = np.frombuffer(memoryview(memory), np.uint8).view(dtype)
    return np.lib.stride_tricks.as_strided(flat, (product.batch, rows, columns), strides)


def compute(product: Gemm, addresses: Sequence[int]) -> None:
    """Make a product of operands at these addresses."""
    found = {
        name: matrices(product, matrix, element, rows, columns, addresses[matrix.operand])
        for name, (matrix, element, rows, columns) in product.matrices.items()
    }
    wide = np.dtype(np.float64 if product.element == "f64" else np.float32)
    factors = [found[name].astype(wide) for name in ("left", "right")]
    turned = product.left.transposed, product.right.transposed
    factors = [f.transpose(0, 2, 1) if turn else f for f, turn in zip(factors, turned)]
    total = wide.type(product.scale) * (factors[0] @ factors[1])
    for name in ("addend", "bias"):
        if name in found:
            total = total + found[name].astype(wide)
    if product.activation == "relu":
        total = np.maximum(total, 0)
    elif product.activation == "gelu":
        total = total / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3)))
    found["target"][...] = total.astype(numpy_dtype(product.result))


# ------------------------------------------------------------------------------------ programs


def image_of(function: Callable[..., Any], *specs: Any, **options: Any) -> Image:
    """A program for sm_90 whose kernels are not compiled; what runs it is a stand-in."""
    return image_of_graph(gc.compile(function).graph(*specs), **options)


def image_of_graph(graph: Graph, **options: Any) -> Image:
    """As `image_of`."""

    def without_code(compiler: CudaCompiler) -> None:
        compiler.result.modules[packed(b"cubin sm_90", "")] = list(compiler.result.launches)

    config = Config(threads=1, devices=("gpu:0",), target="cuda:sm_90", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaCompiler, "_compile", without_code)
        image, _ = build_image(pipeline.run(graph, config)[-1].value, config)
    image.check()
    return image


def run(image: Image, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results of a program all of whose kernels are products, from host memory alone."""
    results = [np.full(slot.shape, 7, numpy_dtype(slot.dtype)) for slot in image.results]
    arena = np.full(image.arena_bytes, 0xA5, np.uint8)
    bases = [address_of(a) for a in (arena, image.constants, *arrays, *results)]
    words = image.table.tolist()
    starts = list(rows(words))
    products = {row: p.calls for row, p in image.products.items()}
    covered = {call for row in products for call in calls_until(words, starts, row, products[row])}
    for row in starts:
        if words[row] == CALL:
            assert row in covered, image.origins[row]
        if row in image.products:
            pairs = operands_of(words, row)
            compute(image.products[row], [bases[base] + offset for base, offset in pairs])
    return results


def products_of(function: Callable[..., Any], *specs: Any, **options: Any) -> list[Gemm]:
    return list(image_of(function, *specs, **options).products.values())
