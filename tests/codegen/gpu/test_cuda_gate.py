"""Ops as code for GPUs, without one: PTX of the oldest chip, and cubins of it for three
generations, with no register in memory. GRAPHC_FUZZ=15 tries every op and dtype on every chip."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from effort import crossed, few
from gpu_launches import CHIPS, chosen, launches_of, launches_of_op

import graphc as gc
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import Chip, chip_of
from graphc.codegen.gpu.compile import compile_ptx
from graphc.codegen.gpu.launch import Launch
from graphc.errors import GraphError
from graphc.ir.op import OPS, Alias, Composite, Scalar, Structural

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
gc.sum  # noqa: B018  a public name fills the op table

MOST_REGISTERS = 128  # of a thread: two blocks of 256 threads share a multiprocessor
SHARE = MOST_REGISTERS * 256  # of a block of fewer threads, which leaves as much to another one
MODULE = 48  # kernels compiled together
PARTS = 2  # tests that the ops are dealt to
ELEMENTWISE = 12  # of those that differ in an expression alone
OTHERS = 45  # simulated GPUs run all of them

# No stage chooses these for programs on GPUs alone: in f64 the loops of the gradient keep rows in
# registers, and those of depthwise convolutions the windows of a row.
SPILLING = {"fused_attention_backward", "conv_windows"}

_assembled: set[str] = set()  # by this process: ops share kernels

# Composite ops have no kernels of their own: they are made of these.
SAMPLED = sorted(
    name
    for name, op in OPS.items()
    if op.samples is not None and not op.traits.on_cpu and not isinstance(op.lower, Composite)
)


def reports(
    launches: dict[str, Launch], chips: list[Chip] = CHIPS, source: Chip | None = None
) -> dict[tuple[str, str], toolkit.Report]:
    """(symbol, chip) -> what the kernel takes there; all of it from PTX for the oldest of them."""
    ptx = compile_ptx(launches, source or chips[0])
    found = {}
    for chip in chips:
        cubin, made = toolkit.assemble(ptx, chip)
        assert cubin[:4] == b"\x7fELF"
        assert made.keys() == launches.keys()
        found.update({(symbol, chip.name): report for symbol, report in made.items()})
    return found


def batches(launches: dict[str, Launch]) -> Iterable[dict[str, Launch]]:
    """A few at a time, exact ones by themselves."""
    for exact in (False, True):
        rest = iter([item for item in launches.items() if item[1].exact is exact])
        while some := dict(islice(rest, MODULE)):
            yield some


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_op_assembles(part: int) -> None:
    launches: dict[str, Launch] = {}
    owners: dict[str, str] = {}
    alike = [name for name in SAMPLED if isinstance(OPS[name].lower, Scalar)]
    others = [name for name in SAMPLED if name not in alike]
    for turn, name in enumerate(few(alike, ELEMENTWISE) + few(others, OTHERS)):
        if turn % PARTS != part:
            continue
        found = launches_of_op(name, few(chosen(OPS[name].samples()), 1, turn))
        assert found or isinstance(OPS[name].lower, Alias | Structural), name
        launches |= {symbol: x for symbol, x in found.items() if symbol not in _assembled}
        owners |= dict.fromkeys(found, name)
    _assembled.update(launches)
    bad = [
        f"{owners[symbol]} on {chip}: {report}"
        for turn, some in enumerate(batches(launches))
        for (symbol, chip), report in reports(some, few(CHIPS, 1, part + turn), CHIPS[0]).items()
        if report.spills or report.registers * max(some[symbol].threads, 128) > SHARE
        if owners[symbol] not in SPILLING
    ]
    assert not bad, "\n".join(bad)


# ------------------------------------------------------------------------------------ templates


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift


def dense(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


def dense_gradient(x: Any, w: Any, b: Any) -> Any:
    return gc.grad(lambda w: dense(x, w, b).sum())(w)


def matmul(a: Any, b: Any) -> Any:
    return a @ b


# What kernels are made of, at the sizes they are made for: name, function, shapes, dtype.
TEMPLATES: list[tuple[str, Any, list[tuple[int, ...]], str]] = [
    ("pointwise", lambda a, b: np.tanh(a) * b, [(1 << 20,)] * 2, "f32"),
    ("softmax", softmax, [(512, 4096)], "f32"),
    ("softmax of short rows", softmax, [(4096, 64)], "f32"),
    ("softmax of long rows", softmax, [(4, 1 << 20)], "f32"),
    ("layer norm", layer_norm, [(512, 768), (768,), (768,)], "f32"),
    ("sum", lambda x: x.sum(), [(1 << 20,)], "f32"),
    ("sum of columns", lambda x: x.sum(axis=0), [(4096, 1000)], "f32"),
    ("mean of halves", lambda x: x.mean(axis=1), [(512, 4096)], "f16"),
    ("argmax", lambda x: x.argmax(axis=1), [(512, 4096)], "f32"),
    ("cumsum", lambda x: np.cumsum(x, axis=1), [(64, 4096)], "f32"),
    ("sort", lambda x: np.sort(x, axis=1), [(64, 4096)], "f32"),
    ("topk", lambda x: gc.topk(x, 8), [(64, 1000)], "f32"),
    ("dense layer", dense, [(512, 768), (768, 3072), (3072,)], "f32"),
    ("its gradient", dense_gradient, [(128, 784), (784, 512), (512,)], "f32"),
    ("matrix and vector", matmul, [(4096, 4096), (4096,)], "f32"),
    ("many products", matmul, [(96, 128, 64), (96, 64, 128)], "f32"),
    ("product", matmul, [(1024, 1024)] * 2, "i32"),  # test_cuda_contract.py has those of floats
    ("attention", gc.attention, [(8, 12, 128, 64)] * 3, "f32"),
]


def check(launches: dict[str, Launch], chips: list[Chip]) -> None:
    """No register in memory, and not more of them than the cap."""
    bad = [
        f"{chip}: {report}"
        for some in batches(launches)
        for (_, chip), report in reports(some, chips).items()
        if report.spills or report.stack or report.registers > MOST_REGISTERS
    ]
    assert launches and not bad, "\n".join(bad)


@pytest.mark.slow
@pytest.mark.parametrize("case", few(TEMPLATES, 6), ids=lambda case: f"{case[0]} {case[3]}")
def test_templates_keep_their_registers(case: Any) -> None:
    _, function, shapes, name = case
    launches = launches_of(function, tuple(gc.spec(shape, name) for shape in shapes))
    check(launches, few(CHIPS, 1, TEMPLATES.index(case)))


@pytest.mark.slow
@pytest.mark.parametrize(("turn", "name"), [(0, "bf16"), (1, "f16")])
def test_products_on_tensor_cores(turn: int, name: str) -> None:
    shapes = [gc.spec((1024, 1024), name)] * 2
    launches = launches_of(matmul, tuple(shapes), target="cuda:sm_80")
    assert any("mma.sync" in compile_ptx({s: x}, CHIPS[1]) for s, x in launches.items())
    check(launches, few(CHIPS[1:], 1, turn))


@pytest.mark.slow
@pytest.mark.parametrize("chip", few(["sm_89", "sm_100", "sm_120"], 2))
def test_newer_chips_have_code_of_their_own(chip: str) -> None:
    target = f"cuda:{chip}"
    launches = launches_of(softmax, (gc.spec((512, 4096), "f32"),), target=target)
    launches |= launches_of(matmul, (gc.spec((512, 512), "f16"),) * 2, target=target)
    check(launches, [chip_of(target)])


@pytest.mark.parametrize(
    ("name", "options"),
    crossed(
        ["softmax", "layer norm", "sum", "dense layer"], [{"parity": True}, {"fast_math": False}]
    ),
)
def test_templates_in_strict_order(name: str, options: dict[str, Any]) -> None:
    _, function, shapes, kind = next(case for case in TEMPLATES if case[0] == name)
    launches = launches_of(function, tuple(gc.spec(shape, kind) for shape in shapes), **options)
    assert all(launch.exact for launch in launches.values())
    check(launches, few(CHIPS, 1))


def test_refused_kernels_are_named() -> None:
    (symbol, launch), *_ = launches_of(lambda x: x + 1, (np.ones(4, np.float32),)).items()
    text = launch.text.replace("def kernel(a0,", "def kernel(a9,")
    assert text != launch.text  # and a0 is undefined

    def make() -> Any:
        space: dict[str, Any] = {}
        exec(text, space)
        return space["kernel"]

    broken = Launch(text, make, launch.buffers, launch.operands, launch.blocks, launch.threads)
    with pytest.raises(GraphError, match=symbol):
        compile_ptx({symbol: broken}, CHIPS[0])
