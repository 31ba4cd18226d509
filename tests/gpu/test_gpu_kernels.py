"""Loop kernels as simulated lanes run them, beside the direct evaluator of the loop IR: those of
the other emitters, and random ones whose lanes meet in registers and scratch memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import emitted_kernels
import numpy as np
import pytest
from effort import rounds
from emitted_kernels import (
    BINARY,
    COMPUTE,
    REAL,
    UNARY,
    check,
    combines,
    elementwise,
    pairs,
    reduction,
    special,
)
from gpu_harness import FEW_BLOCKS, SEED, SIMULATED, last_first, need_gpu
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from graphc.codegen.gpu import arch as chip
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.compile import pointed_dtype
from graphc.codegen.gpu.emit import launches_of
from graphc.ir.types import F64, I32, DType
from graphc.loops.nest import Buffer, Expr, Kernel, Register, Scalars

need_gpu()
if not SIMULATED:
    pytest.skip("kernels by themselves run in the simulator", allow_module_level=True)
pytestmark = pytest.mark.gpu

FORMS = ("fill", "total", "total", "assign", "serial", "when")
CHIPS = [chip.SIMULATED, FEW_BLOCKS]


class Simulated:
    """A kernel as the tests of emitters call it."""

    def __init__(self, kernel: Kernel, shape: Chip) -> None:
        given_buffers = [b for b in kernel.buffers if b.mode != "work"]
        operands = tuple(("in", b.index, 0) for b in given_buffers)
        self.launches, self.workspace = launches_of(kernel, operands, shape)

    def __call__(self, arrays: list[Any], lo: int, hi: int, params: Sequence[int] = ()) -> int:
        from graphc.gpu import cuda

        work = np.full(self.workspace, 0xFF, np.uint8)
        status = np.zeros(1, np.int64)
        for launch in self.launches:
            views = []
            for (dtype, count), (kind, place, _) in zip(
                launch.buffers, launch.operands, strict=True
            ):
                seen = pointed_dtype(dtype)
                memory = work[place:] if kind == "work" else arrays[place]
                size = count * seen.itemsize
                views.append(memory.view(np.uint8)[:size].view(seen))
            kernel = cuda.jit(launch.make())
            kernel[launch.blocks, launch.threads](*views, status, 7)
        return int(status[0]) & 0xFFFFFFFF


@pytest.fixture(autouse=True, params=CHIPS, ids=["blocks", "few"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route "gpu" of `check`: on two chips, in two orders of threads."""
    if request.param is FEW_BLOCKS:
        last_first(monkeypatch)
    routes = {"gpu": lambda kernel: Simulated(kernel, request.param)}
    monkeypatch.setattr(emitted_kernels, "ROUTES", routes)


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_ops(dtype: DType) -> None:
    x, y = pairs(dtype)
    count = min(len(x), 160)
    names = BINARY[dtype.kind]
    kernel = elementwise(
        [dtype, dtype],
        [dtype] * len(names),
        count,
        lambda b, x, y: [b.op(name, x, y) for name in names],
    )
    picked = np.linspace(0, len(x) - 1, count).astype(int)
    sinks = [np.zeros(count, dtype.numpy) for _ in names]
    check(kernel, [x[picked], y[picked], *sinks])
    values = special(dtype)
    kernel = elementwise(
        [dtype],
        [dtype] * len(UNARY[dtype.kind]),
        len(values),
        lambda b, x: [b.op(name, x) for name in UNARY[dtype.kind]],
    )
    check(kernel, [values, *[np.zeros(len(values), dtype.numpy) for _ in UNARY[dtype.kind]]])


@pytest.mark.parametrize("source", REAL, ids=str)
def test_casts(source: DType) -> None:
    values = special(source)[:60]
    kernel = elementwise(
        [source], COMPUTE, len(values), lambda b, x: [b.cast(x, d) for d in COMPUTE]
    )
    check(kernel, [values, *[np.zeros(len(values), d.numpy) for d in COMPUTE]])


# ------------------------------------------------------------------------------------ lanes


@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_reductions(dtype: DType) -> None:
    generator = np.random.default_rng(SEED)
    for combine in combines(dtype):
        for size in (1, 5, 36):
            bits = generator.integers(0, 2 if dtype.kind == "b" else 100, size)
            values = bits / 64 + 0.25 if dtype.kind == "f" else bits
            arrays = [values.astype(dtype.numpy), np.zeros(1, dtype.numpy)]
            tolerance = 4e-7 * size if dtype.kind == "f" else 0.0
            check(reduction(dtype, combine, size), arrays, tolerance=tolerance)


def test_kernels_of_the_other_emitters() -> None:
    emitted_kernels.check_that_loads_are_read_when_used()
    emitted_kernels.check_gather_with_checked_index()


class Lanes:
    """A random kernel of rows: loops over lanes that fill scratch memory and update registers,
    inside of serial loops and conditions that all lanes take together."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.b = Scalars()
        self.units, self.count = self.pick((1, 3, 5)), self.pick((3, 4, 8, 11, 16))
        total = self.units * self.count
        self.source = Buffer(0, I32, total, "in")
        self.sink = Buffer(1, I32, total, "out")
        self.totals = [Buffer(2, I32, self.units, "out"), Buffer(3, F64, self.units, "out")]
        self.scratch = [Buffer(4, I32, self.count, "work"), Buffer(5, I32, self.count, "work")]
        self.registers: list[Register] = []
        self.rare = self.pick(((), (), ("single",)))

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.data.draw(st.sampled_from(list(choices)))

    def kernel(self) -> Kernel:
        b = self.b
        with b.loop(self.units, "parallel") as self.unit:
            for kind in (I32, I32, F64):
                self.registers.append(b.register(b.const(self.pick((0, 1, 5)), kind)))
            for scratch in self.scratch:
                self.fill(scratch, first=True)
            self.block(2)
            with b.loop(self.count, "vector") as i:
                left = [b.load(s, i) for s in self.scratch]
                b.store(self.sink, self.at(i), b.op("xor", b.op("add", *left), self.value(i)))
            b.store(self.totals[0], self.unit, b.read(self.registers[0]))
            b.store(self.totals[1], self.unit, b.read(self.registers[2]))
        buffers = (self.source, self.sink, *self.totals, *self.scratch)
        return Kernel("k0", buffers, 0, b.body, self.units)

    def at(self, i: Expr) -> Expr:
        return self.b.affine([(self.unit, self.count), (i, 1)])

    def place(self, i: Expr) -> Expr:
        """The own place of a lane, or that of another one."""
        last = self.b.integer(self.count - 1)
        return self.pick((i, self.b.sub(last, i)))

    def value(self, i: Expr, *, own: Buffer | None = None, leave: Register | None = None) -> Expr:
        """Of lane i; it may read scratch memory but for `own`, and registers but for `leave`."""
        b = self.b
        leaves = [b.load(self.source, self.at(i)), b.cast(i, I32), b.const(3, I32)]
        leaves += [b.load(s, self.place(i)) for s in self.scratch if s is not own]
        leaves += [b.read(r) for r in self.registers[:2] if r is not leave]
        x, y = self.pick(leaves), self.pick(leaves)
        return b.op(self.pick(("add", "sub", "mul", "xor", "min", "max")), x, y)

    def fill(self, scratch: Buffer, first: bool = False) -> None:
        with self.b.loop(self.count, "vector") as i:
            known = self.b.load(self.source, self.at(i))
            self.b.store(scratch, self.place(i), known if first else self.value(i, own=scratch))

    def total(self, register: Register) -> None:
        b = self.b
        with b.loop(self.count, "vector") as i:
            value = self.value(i, leave=register)
            if register.dtype is F64:
                value = b.cast(b.op("and", value, b.const(1023, I32)), F64)
            name = self.pick(("add", "min", "max") if register.dtype is F64 else combines(I32))
            if self.pick((True, False)):
                with b.when(b.compare("gt", self.value(i, leave=register), b.const(2, I32))):
                    b.update(register, name, value)
            else:
                b.update(register, name, value)

    def block(self, depth: int) -> None:
        for _ in range(self.pick((1, 2, 3))):
            self.step(depth)

    def step(self, depth: int) -> None:
        b = self.b
        form = self.pick((*self.rare, *(FORMS if depth else FORMS[:4])))
        if form == "fill":
            self.fill(self.pick(self.scratch))
        elif form == "total":
            self.total(self.pick(self.registers))
        elif form == "assign":
            one, other = self.registers[:2]
            b.assign(one, b.op("xor", b.read(one), b.read(other)))
        elif form == "single":  # every lane knows what it is, and all read it
            place = self.pick((0, self.count - 1))
            b.store(self.pick(self.scratch), place, b.read(self.registers[0]))
        elif form == "serial":
            with b.loop(self.pick((0, 1, 3))):
                self.block(depth - 1)
        else:
            with b.when(b.compare("lt", b.read(self.registers[0]), b.const(40, I32))):
                self.block(depth - 1)


@seed(SEED)
@settings(
    max_examples=rounds(20),
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_random_lanes(data: st.DataObject) -> None:
    kernel = Lanes(data).kernel()
    values = np.random.default_rng(SEED).integers(-9, 10, kernel.buffers[0].size)
    arrays = [np.zeros(b.size, b.dtype.numpy) for b in kernel.buffers]
    arrays[0] = values.astype(np.int32)
    check(kernel, arrays)
