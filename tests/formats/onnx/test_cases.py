"""ONNX's own cases: a cheap share of them, on the interpreter and compiled."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import pytest

pytest.importorskip("onnx", reason="the onnx package reads ONNX files")

from benchmarks import onnx_cases
from benchmarks.onnx_cases import Case, outcome, value

# Modules of cases that are made quickly; one of each family of operators.
MODULES = (
    "argmax", "batchnorm", "cast", "clip", "compress", "concat", "constantofshape", "conv",
    "convtranspose", "cumsum", "dequantizelinear", "dynamicquantizelinear", "einsum", "expand",
    "gathernd", "gatherelements", "gemm", "gridsample", "groupnormalization", "gru", "hardmax",
    "if_", "layernormalization", "loop", "lrn", "lstm", "matmulinteger", "mod", "nonmaxsuppression",
    "nonzero", "onehot", "pad", "qlinearconv", "reducemax", "reversesequence", "roialign",
    "rotaryembedding", "scan", "scatternd", "slice", "split", "topk", "unique",
)  # fmt: skip
COMPILED = ("gru_seq_length", "loop11", "nonmaxsuppression_two_classes", "scatternd_add", "lrn")


@cache
def node_cases() -> dict[str, Case]:
    import onnx.backend.test.case.node as node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in MODULES:
            try:
                importlib.import_module(f"onnx.backend.test.case.node.{module}")
            except ImportError:  # another version of the package
                continue
    found = {}
    for case in node._NodeTestCases:
        data = [(list(map(value, i)), list(map(value, o))) for i, o in case.data_sets]
        found[case.name] = Case(case.name, case.model, data, case.rtol, case.atol)
    return found


@pytest.mark.slow
def test_node_cases_on_the_interpreter() -> None:
    failed = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in node_cases().items():
            how, why = outcome(case, "reference")
            if how != "passed":
                failed[name] = why
    assert not failed
    assert len(node_cases()) > 200


@pytest.mark.parametrize("name", COMPILED)
def test_node_cases_compiled(name: str) -> None:
    assert outcome(node_cases()[f"test_{name}"]) == ("passed", "")


@pytest.mark.parametrize("kind", ["simple", "pytorch-operator"])
def test_small_models(kind: str) -> None:
    """All but those of strings and of a graph's gradient."""
    for case in onnx_cases.cases(kind):
        how, why = outcome(case, "reference")
        if how != "passed":
            assert how == "refused", (case.name, why)
            assert "StringNormalizer" in why or "Gradient" in why, (case.name, why)
