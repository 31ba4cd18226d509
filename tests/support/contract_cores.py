"""The contraction core by itself: strided problems and their reference."""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from graphc.codegen import gemm as contract
from graphc.codegen.gemm import Dim, NormalForm, Plan
from graphc.codegen.llvm.target import Target, host, machine
from graphc.ops.linalg.packing import pack_panels

NUMPY: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    **{f"{sign}{bits}": f"{sign}{bits // 8}" for sign in "iu" for bits in (8, 16, 32, 64)},
}
# Small integers summed in i32: the types of A and B.
WIDENED = {
    f"{name}_i32": types
    for name, types in {
        "i8": ("i1", "i1"),
        "u8": ("u1", "u1"),
        "i8u8": ("i1", "u1"),
        "u8i8": ("u1", "i1"),
        "i16": ("i2", "i2"),
        "u16": ("u2", "u2"),
    }.items()
}
TOLERANCE = {"f32": 2e-6, "f64": 1e-14, "f16": 1e-3, "bf16": 8e-3}
NEVER = np.zeros(1, np.int64)  # a cancel flag that nobody sets
KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
LOADED: list[Any] = []


@functools.cache
def jit() -> llvm.LLJIT:
    """One linker for all objects of the tests."""
    return llvm.create_lljit_compiler(machine(host()), use_jit_link=True)


def link(code: bytes, exports: Sequence[str], imports: dict[str, int]) -> dict[str, int]:
    """Load object code and return the addresses of its exports."""
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    for name in exports:
        builder.export_symbol(name)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    LOADED.append(builder.link(jit(), f"contract{len(LOADED)}"))
    return {name: LOADED[-1][name] for name in exports}


@functools.cache
def core(dtype: str) -> dict[str, int]:
    """The compiled core of a data type, once per run of the tests."""
    return linked_core(dtype, host())


def linked_core(dtype: str, target: Target, parts: int = contract.Part.ALL) -> dict[str, int]:
    """The addresses of the entries of a core."""
    addresses: dict[str, int] = {}
    for module in contract.core_of(dtype, contract.hardware_of(target), parts):
        code = contract.compile_core([module.text], module.inner, target)
        fused = [f"{module.symbol}_fused"] if module.is_entry else []
        addresses |= link(code, [module.symbol, *fused], addresses)
    return addresses


def aligned(size: int) -> np.ndarray:
    """Bytes on a cache line boundary, filled with something that is not zero."""
    block = np.full(size + 64, 0xC5, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def pointers(arrays: Sequence[np.ndarray]) -> Any:
    """The `bufs` argument of a kernel: before it lies the address of the cancel flag."""
    addresses = [array.ctypes.data for array in arrays]
    table = (ctypes.c_void_p * (1 + len(arrays)))(NEVER.ctypes.data, *addresses)
    return (ctypes.c_void_p * len(arrays)).from_buffer(table, ctypes.sizeof(ctypes.c_void_p))


def call(
    plan: Plan,
    function: int,
    buffers: Sequence[np.ndarray],
    extras: Sequence[np.ndarray] = (),
    spans: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Run a kernel over all its units, or over given (lo, hi, thread) pieces."""
    threads = 1 + max((thread for _, _, thread in spans), default=0)
    work = aligned(plan.workspace * threads)
    first, second, *rest = buffers
    if plan.swapped:
        first, second = second, first
    bufs = pointers([first, second, *rest, work, *extras])
    params = np.array(plan.params, np.int64)
    kernel = KERNEL(function)
    for lo, hi, thread in spans or [(0, plan.units, 0)]:
        assert kernel(ctypes.addressof(bufs), params.ctypes.data, lo, hi, thread) == 0


def values(dtype: str, size: int, seed: int, operand: int = 0) -> np.ndarray:
    """Random elements that make sums worth checking, of A (0), B or C."""
    generator = np.random.default_rng(seed)
    if dtype in WIDENED:
        element = np.dtype((*WIDENED[dtype], "i4")[operand])
        extremes = generator.random() < 0.3  # of i8: -128 throughout
        if extremes and operand < 2:
            return np.full(size, np.iinfo(element).min or np.iinfo(element).max, element)
        return np.asarray(generator.integers(0, 256, size * element.itemsize, np.uint8)).view(
            element
        )
    if dtype == "bool":
        return generator.random(size) < 0.2
    if dtype in TOLERANCE:
        return generator.standard_normal(size).astype(NUMPY[dtype])
    bits = generator.integers(0, 256, size * np.dtype(NUMPY[dtype]).itemsize, np.uint8)
    return np.asarray(bits.view(NUMPY[dtype]))


class Layout:
    """Strides of an operand over its dims: some order, some gaps, some dims reversed."""

    def __init__(self, extents: Sequence[int], choose: random.Random, plain: bool) -> None:
        order = list(range(len(extents)))
        if not plain:
            choose.shuffle(order)
        self.strides = [0] * len(extents)
        self.offset, span = 0, 1
        for position in reversed(order):
            if not plain and choose.random() < 0.25:
                span += choose.choice([1, 3, 16])
            self.strides[position] = span
            span *= max(1, extents[position])
            if not plain and choose.random() < 0.2:
                self.offset += self.strides[position] * max(0, extents[position] - 1)
                self.strides[position] *= -1
        self.size = span + 1

    def repeat(self, position: int) -> None:
        """Make one dim a broadcast."""
        if self.strides[position] > 0:
            self.strides[position] = 0


class Problem:
    """A contraction with its data and its result by NumPy."""

    def __init__(
        self, dtype: str, groups: dict[str, list[int]], seed: int, plain: bool = False
    ) -> None:
        choose = random.Random(seed)
        self.dtype = dtype
        self.groups = groups
        uses = {"a": "bmk", "b": "bkn", "c": "bmn"}
        self.layout = {
            name: Layout([e for g in used for e in groups[g]], choose, plain)
            for name, used in uses.items()
        }
        if not plain and choose.random() < 0.3 and groups["b"]:
            self.layout[choose.choice("ab")].repeat(0)
        self.dims = {g: [Dim(e) for e in groups[g]] for g in "bmnk"}
        for name, used in uses.items():
            strides = iter(self.layout[name].strides)
            for group in used:
                for position, dim in enumerate(self.dims[group]):
                    self.dims[group][position] = dim._replace(**{name: next(strides)})
        self.data = {
            name: values(dtype, self.layout[name].size, seed + k, k) for k, name in enumerate("abc")
        }

    def contraction(self) -> NormalForm:
        """The normal form."""
        batch, m, n, k = (tuple(self.dims[g]) for g in "bmnk")
        a, b, c = (self.layout[name].offset for name in "abc")
        return NormalForm(self.dtype, batch, m, n, k, a, b, c)

    def view(self, name: str, used: str) -> np.ndarray:
        """An operand as an array over the dims it uses."""
        layout, data = self.layout[name], self.data[name]
        shape = [e for g in used for e in self.groups[g]]
        strides = [stride * data.itemsize for stride in layout.strides]
        return np.lib.stride_tricks.as_strided(data[layout.offset :], shape, strides)

    def expected(self) -> np.ndarray:
        """The result by NumPy, floats in double precision."""
        exact = np.int32 if self.dtype in WIDENED else NUMPY.get(self.dtype)
        wide = np.float64 if self.dtype in TOLERANCE else exact
        a, b = self.view("a", "bmk").astype(wide), self.view("b", "bkn").astype(wide)
        count = {g: int(np.prod(self.groups[g])) for g in "bmnk"}
        a = np.ascontiguousarray(a).reshape(count["b"], count["m"], count["k"])
        b = np.ascontiguousarray(b).reshape(count["b"], count["k"], count["n"])
        result: np.ndarray = np.matmul(a, b)
        return result.reshape([e for g in "bmn" for e in self.groups[g]])

    def result(self) -> np.ndarray:
        """What the core wrote."""
        return self.view("c", "bmn")

    def run(
        self, spans: Callable[[Plan], list[tuple[int, int, int]]] | None = None, **options: Any
    ) -> Plan:
        """Plan, run the core, check the result and that nothing around it was written."""
        panels = contract.panels_of(self.contraction(), contract.host_target())
        if panels is None:
            options["packed_b"] = False
        plan = contract.plan(self.contraction(), contract.host_target(), **options)
        before = self.data["c"].copy()
        buffers = [self.data[name] for name in "abc"]
        if plan.packed and panels is not None:
            buffers[panels.operand] = packed_operand(plan, panels, self)
        symbol = core(plan.core)[contract.contract_symbol(plan.core)]
        call(plan, symbol, buffers, spans=spans(plan) if spans else ())
        self.check(before)
        return plan

    def check(self, before: np.ndarray) -> None:
        """Compare with NumPy; elements of C's buffer that are not in C keep their bits."""
        found, expected = self.result(), self.expected()
        if self.dtype in TOLERANCE:
            scale = max(1.0, float(np.sqrt(max(1, int(np.prod(self.groups["k"]))))))
            error = np.abs(found.astype(np.float64) - expected)
            bound = TOLERANCE[self.dtype] * (np.abs(expected) + 4 * scale)
            assert (error <= bound).all(), error.max()
        else:
            np.testing.assert_array_equal(found, expected)
        touched = np.zeros(self.data["c"].shape, bool)
        layout = self.layout["c"]
        np.lib.stride_tricks.as_strided(touched[layout.offset :], found.shape, layout.strides)[
            ...
        ] = True
        raw = np.ascontiguousarray(self.data["c"]).view(np.uint8).reshape(len(touched), -1)
        old = np.ascontiguousarray(before).view(np.uint8).reshape(len(touched), -1)
        np.testing.assert_array_equal(raw[~touched], old[~touched])


def packed_operand(plan: Plan, panels: contract.Panels, problem: Problem) -> np.ndarray:
    """The operand that is read as panels, as the pass `pack` lays it out."""
    layout = panels.batch, panels.k, panels.n, panels.offset, panels.columns, panels.step
    made = pack_panels(problem.data["ab"[panels.operand]], *layout, panels.together)
    assert made.nbytes == plan.packed
    where = aligned(plan.packed)
    where[:] = made.view(np.uint8)
    return where


def matrix(dtype: str, m: int, n: int, k: int, layout: str = "nn", seed: int = 1) -> Problem:
    """A plain matrix product; `layout` says for A, B and optionally C whether it is transposed."""
    problem = Problem(dtype, {"b": [], "m": [m], "n": [n], "k": [k]}, seed, plain=True)
    for name, letter, groups in zip("abc", layout.ljust(3, "n"), ("mk", "kn", "mn"), strict=True):
        if letter == "t":
            first, second = (problem.dims[g][0].extent for g in groups)
            problem.layout[name].strides = [1, first]
            problem.dims[groups[0]][0] = problem.dims[groups[0]][0]._replace(**{name: 1})
            problem.dims[groups[1]][0] = problem.dims[groups[1]][0]._replace(**{name: first})
            assert second >= 0
    return problem
