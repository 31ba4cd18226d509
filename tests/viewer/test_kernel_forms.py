"""The forms of kernels: debug information links lines and changes no instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.build import kernel_texts
from graphc.codegen.compiler import renamed
from graphc.codegen.llvm.target import target_of
from graphc.viewer.kernels import linked
from graphc.viewer.lines import llvm_lines, python_lines


def instructions(text):
    """The instructions of an assembly text, without the names of labels."""
    code = [line for line in text.splitlines() if re.match(r"\t[a-z]", line)]
    return [re.sub(r"\.L\w+", ".L", line) for line in code]


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
        lambda x: np.maximum(x @ x.T, 0) + 1,
        lambda x: np.sort(x, axis=0).cumsum(axis=1),
        lambda x: np.where(x > 0, np.log(x * x + 1), -x),
    ],
)
def test_debug_information_changes_no_instruction(function, opt):
    f = gc.compile(function, opt=opt)
    x = np.ones((16, 16), np.float32)
    built, _ = f.prepared((x,), {})
    target, texts = target_of(f.config), kernel_texts(built.kernels, f.config)
    linked_lines = 0
    for name in [name for name in texts if name.endswith(".s")]:
        llvm, native = texts[name[:-2] + ".ll"], texts[name]
        text, origins = linked(llvm, native, target, opt)
        assert instructions(text) == instructions(native)
        assert len(origins) == len(text.splitlines())
        lines = llvm.splitlines()
        for line, origin in zip(text.splitlines(), origins, strict=True):
            assert not origin or (line[0] == "\t" and lines[origin - 1].startswith("  "))
        linked_lines += sum(map(bool, origins))
    assert linked_lines


def test_a_text_that_llvm_refuses_is_shown_without_links():
    assert linked(
        "define void @f() {\n  nonsense\n}", "ret", target_of(gc.compile(abs).config), 2
    ) == ("ret", [])


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "function",
    [
        softmax,
        lambda x: np.tanh(x @ x) * 2 + x,
        lambda x: np.where(x > 0, np.log(x * x + 1), -x).astype(np.float64),
        lambda x: ((x - x.mean(axis=1, keepdims=True)) ** 2).mean(axis=1),
        lambda x: np.sqrt(abs(x)).T[::2] + 1,
    ],
)
def test_every_node_of_a_kernel_has_lines(function):
    f = gc.compile(function)
    built, _ = f.prepared((np.ones((48, 48), np.float32),), {})
    texts, target = kernel_texts(built.kernels, f.config), target_of(f.config)
    for symbol, kernel in built.kernels.kernels.items():
        kernel = renamed(kernel, symbol)
        python, llvm = texts[f"{symbol}.py"], texts[f"{symbol}.ll"]
        found = python_lines(kernel, python), llvm_lines(kernel, llvm, target)
        nodes = [{node for line in lines for node in line} for lines in found]
        assert nodes[0] and len(nodes[0] ^ nodes[1]) <= 1  # a cast may have no line of its own
        for text, lines in zip((python, llvm), found):
            assert len(lines) == len(text.split("\n"))
        body = next(r for r in regions(built) if nodes[0] <= {n.id for n in r.nodes})
        working = {n.op.name for n in body.nodes if n.id in nodes[0]}
        assert working & {"exp", "tanh", "log", "sub", "sqrt", "sum", "mul", "add", "mean"}


def regions(built):
    return [r for g in built.program.graphs for n in g.nodes for r in n.regions]


def test_lines_of_a_sum_of_exponentials():
    f = gc.compile(softmax)
    built, _ = f.prepared((np.ones((32, 40), np.float32),), {})
    ((symbol, kernel),) = built.kernels.kernels.items()
    names = {n.id: n.op.name for n in regions(built)[0].nodes}
    text = kernel_texts(built.kernels, f.config)[f"{symbol}.py"]
    told = python_lines(renamed(kernel, symbol), text)
    linked = [(line.strip(), [names[n] for n in ids]) for line, ids in zip(text.split("\n"), told)]
    body = dict(linked[next(k for k, (line, _) in enumerate(linked) if symbol in line) :])
    assert body["r0 = maximum_f32(r0, a0[at(i1 + i0 * 40)])"] == ["max"]
    assert body["r2 += np.float64(t0)"] == ["sum"]
    assert next(ids for line, ids in body.items() if line.startswith("t0 = exp_b")) == [
        "sub",
        "exp",
    ]
    assert next(ids for line, ids in body.items() if line.startswith("a1[")) == ["div"]
