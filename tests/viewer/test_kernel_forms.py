"""The forms of kernels: debug information links lines and changes no instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.build import kernel_texts, target_of
from graphc.viewer.kernels import linked


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
