"""What the device functions of contraction kernels stand for, without a GPU.

Kernels of a single thread need no barrier: Numba compiles them for the CPU, with the very LLVM code
that a GPU would run.  Instructions of tensor cores are carried out as NVIDIA's manual says.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import few
from simulated_contractions import LAYOUTS, TOLERANCE, Spec, drawn, region_of, shapes

from graphc import gpu
from graphc.codegen.gemm.form import normalise, total
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.compile import pointed_dtype
from graphc.codegen.gpu.contraction.kernels import Contract
from graphc.codegen.gpu.contraction.tile_choice import Cut, Thin, Tile, filled
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.lowering.contraction import form_of
from graphc.ops.reference.interpreter import interpret

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

DEVICE = "graphc.codegen.gpu.contraction.device"


@pytest.fixture(scope="module")
def device() -> Any:
    """The device functions as Numba's functions for the CPU."""
    from llvmlite import ir
    from numba.core import cgutils
    from numba.extending import intrinsic

    spec = importlib.util.find_spec(DEVICE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "compiler_parts", lambda: (ir, cgutils, intrinsic))
        spec.loader.exec_module(module)
    return module


def on_cpu(launch: Launch, device: Any) -> Callable[..., None]:
    """The kernel of one thread per block as a C function of pointers, status, row and block."""
    import numba
    from numba import types

    text = re.sub(r"^from graphc.*\n", "", launch.text, flags=re.MULTILINE)
    text = text.replace("helper = device\n", "")
    text = text.replace("cuda.threadIdx.x", "0").replace("cuda.blockDim.x", "1")
    text = text.replace("cuda.blockIdx.x", "block").replace("cuda.syncthreads()", "pass")
    text = re.sub(r"cuda\.shared\.array\((\d+), ([\w.]+).*\)", r"np.zeros(\1, \2)", text)
    text = re.sub(r"def kernel\((.*)\)", r"def kernel(\1, block)", text)
    namespace = {**vars(device), "helper": numba.njit(error_model="numpy"), "np": np}
    exec(text, namespace)
    pointer: Any = types.CPointer
    buffers = [pointer(numba.from_dtype(pointed_dtype(dtype))) for dtype, _ in launch.buffers]
    signature = types.void(*buffers, pointer(types.int64), types.int64, types.int64)
    compiled = numba.cfunc(signature)(namespace["kernel"])
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(buffers) + 1), *[ctypes.c_int64] * 2)(
        compiled.address
    )


def shifted(array: np.ndarray, count: int) -> np.ndarray:
    """The array at `count` elements behind an address that is a multiple of 64."""
    size = array.dtype.itemsize
    memory = np.zeros(array.nbytes + 64 + count * size, np.uint8)
    start = -memory.ctypes.data % 64 + count * size
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def check(
    device: Any, dtype: str, layout: str, sizes: tuple[int, ...], tile: Tile | Thin, splits: int = 1
) -> None:
    """A kernel of one thread against the reference, over aligned memory and over other."""
    specs: list[Spec] = [(shape, dtype) for shape in shapes(layout, *sizes)]
    region = region_of(LAYOUTS[layout], specs)
    contract = Contract(region, form_of(region), Chip("sm_90", threads=1, blocks=2))
    launches, workspace = contract.of(cut_for(contract, tile, splits))
    kernels = [(launch, on_cpu(launch, device)) for launch in launches]
    random = np.random.default_rng(sum(sizes))
    for shift in (0, 1):
        operands = [shifted(drawn(p.type, random), shift) for p in region.params]
        expected = interpret(region, operands, wide=True)[0]
        result = np.full(expected.shape, 7, region.results[0].type.dtype.numpy)
        memory = {"in": operands, "out": [result], "work": [np.zeros(workspace + 8, np.uint8)]}
        status = np.zeros(1, np.int64)
        for launch, kernel in kernels:
            assert launch.threads == 1
            pointers = [memory[kind][n].ctypes.data for kind, n, _ in launch.operands]
            for block in range(launch.blocks):
                kernel(*pointers, status.ctypes.data, 0, block)
        if dtype in TOLERANCE:
            scale = np.abs(expected).max()
            assert np.abs(result.astype(np.float64) - expected).max() <= TOLERANCE[dtype] * scale
        else:
            assert (result == expected).all()


def cut_for(contract: Contract, tile: Any, splits: int) -> Cut:
    groups = normalise(contract.form.normal(), tile.columns)
    sizes = (total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    return Cut(groups, tile, filled(splits, sizes[3], tile.depth), *sizes)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", few(["f64", "bf16", "i8", "f16", "u16", "i64"], 1))
def test_tiles_of_one_thread_on_the_cpu(device: Any, dtype: str) -> None:
    check(device, dtype, "nt", (6, 8, 16), Tile(2, 4, 8, 2, 4))


LAID_OUT: list[Any] = [
    ("nn", (8, 16, 8), Tile(8, 8, 2, 8, 8)),
    ("tt", (7, 5, 13), Tile(2, 4, 4, 2, 4)),
    ("strided", (4, 8, 9), Tile(2, 4, 4, 2, 4)),
    ("tn", (8, 4, 40), Tile(2, 4, 8, 2, 4), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", few(LAID_OUT, 1, 1))
def test_layouts_of_one_thread_on_the_cpu(device: Any, case: Any) -> None:
    check(device, "f32", *case)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_streams_of_one_thread_on_the_cpu(device: Any, dtype: str) -> None:
    check(device, dtype, "nt", (2, 6, 24), Thin(2, 2, 1, 2, 2, 2, "k"))
    if dtype == "f32":
        check(device, dtype, "nn", (3, 8, 21), Thin(3, 2, 1, 2, 1, 4, "columns"))
        check(device, dtype, "nt", (1, 5, 48), Thin(1, 1, 1, 1, 4, 2, "k"), 2)
