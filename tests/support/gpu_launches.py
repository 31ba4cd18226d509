"""The kernels of functions and ops as code for GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import graphc as gc
from graphc.codegen.build import Compilers, writer_of
from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.launch import Launch
from graphc.config import Config
from graphc.frontend.compile.build import stages_of
from graphc.ir.graph import Program
from graphc.ir.op import OPS, Sample
from graphc.ir.types import dtype
from graphc.ops.record.value import emit

OLDEST = "cuda:sm_75"
CHIPS = [chip_of(OLDEST), chip_of("cuda:sm_80"), chip_of("cuda:sm_90")]


def chosen(samples: Iterable[Sample]) -> list[Sample]:
    """The largest of the good samples of each combination of dtypes."""
    best: dict[Any, tuple[int, Sample]] = {}
    for sample in samples:
        arrays = [np.asarray(o) for o in sample.operands]
        size = sum(a.size for a in arrays)
        key = (*(dtype(a.dtype).name for a in arrays), str(sample.attrs.get("dtype")))
        if sample.good and size > best.get(key, (-1,))[0]:
            best[key] = size, sample
    return [sample for _, sample in best.values()]


def launches_of(
    function: Any, arguments: tuple[Any, ...], target: str = OLDEST, **options: Any
) -> dict[str, Launch]:
    """The kernels of a function on a GPU, by symbol."""
    config = Config.create(target=target, **options)
    value = stages_of(gc.compile(function, **options).graph(*arguments), config)[-1].value
    compilers = Compilers(config)
    for graph in value.graphs if isinstance(value, Program) else (value,):
        writer = writer_of(graph, config, compilers, {})
        writer.compiler.need(writer.specs())
        writer.write()
    return compilers.gpu.result.launches if compilers.gpu is not None else {}


def launches_of_op(name: str, samples: Iterable[Sample]) -> dict[str, Launch]:
    """The kernels of an op for each of the samples."""
    op = OPS[name]
    samples = list(samples)
    operands = [[np.asarray(o) for o in s.operands] for s in samples]

    def apply_all(operands: Any) -> Any:
        return [emit(op, *given, **s.attrs) for given, s in zip(operands, samples)]

    return launches_of(apply_all, (operands,), opt=0)
