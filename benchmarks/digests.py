"""`python -m benchmarks.digests`: a digest of every kernel text of a fixed corpus of programs.

A change of the compiler that should not change what it makes is proven by equal digests before and
after; one that should names the cases it changed in its commit.

    python -m benchmarks.digests > before
    python -m benchmarks.digests --compare before      # exit 3 and the cases that differ

The corpus: every op at each combination of dtypes and attributes that its samples have, random
programs made of all ops, the benchmark cases and an example.  A line holds the name of a case and
digests of its LLVM IR and readable source, of both in strict order on a smaller machine, and of its
source for a GPU; - where there is none.  Nothing is compiled, and the machines are always the same.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np

import graphc as gc
from benchmarks.suite import CASES
from graphc.codegen.build import kernel_sources, written
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.op import OPS, Op, Sample
from graphc.ops.record.value import emit
from graphc.passes import pipeline

CPU = Config(threads=4, target="cpu:skylake-avx512", verify=0)
STRICT = Config(threads=4, target="cpu:x86-64-v3", verify=0, fast_math=False, check_finite=True)
GPU = Config(threads=4, target="cuda:sm_90", devices=("gpu:0",), verify=0)
PROGRAMS, NODES = 150, 12  # random programs and the ops of each
DIFFERENT = 3  # exit status
Case = tuple[str, Callable[[], Graph]]


# ------------------------------------------------------------------------------------------ corpus


def corpus() -> Iterator[Case]:
    """(name, what makes the graph) of every program."""
    samples = {name: good_samples(op) for name, op in sorted(OPS.items())}
    for name, groups in samples.items():
        for kinds, group in groups.items():
            yield f"{name}({kinds})", partial(graph_of_samples, OPS[name], group)
    pool = [(name, s) for name, groups in samples.items() for g in groups.values() for s in g]
    for seed in range(PROGRAMS):
        yield f"program-{seed}", partial(random_program, pool, seed)
    for name in CASES:
        yield name, partial(graph_of_case, name)
    yield "examples/mlp", graph_of_example


def good_samples(op: Op) -> dict[str, list[Sample]]:
    """The legal samples of an op by the dtypes of their operands; no two of one type."""
    groups: dict[str, dict[Any, Sample]] = defaultdict(dict)
    for sample in op.samples() if op.samples else ():
        if sample.good:
            arrays = [np.asarray(operand) for operand in sample.operands]
            key = (*(a.shape for a in arrays), repr(sample.attrs))
            groups[",".join(a.dtype.name for a in arrays)].setdefault(key, sample)
    return {kinds: list(group.values()) for kinds, group in groups.items()}


def graph_of_samples(op: Op, samples: list[Sample]) -> Graph:
    """All samples in one graph, with a result each."""

    def all_of_them(operands: Any) -> Any:
        return [emit(op, *given, **s.attrs) for given, s in zip(operands, samples, strict=True)]

    return gc.compile(all_of_them).graph([[np.asarray(o) for o in s.operands] for s in samples])


def random_program(samples: list[tuple[str, Sample]], seed: int) -> Graph:
    """Ops on what other ops have made, wherever the types agree; the samples say which types."""
    random = Random(seed)
    chosen = random.sample(samples, NODES)
    operands = [[np.asarray(o) for o in sample.operands] for _, sample in chosen]

    def program(arguments: Any) -> Any:
        made: dict[Any, list[Any]] = defaultdict(list)
        for (name, sample), given in zip(chosen, arguments, strict=True):
            known = [[x, *made[x.dtype, x.shape]] for x in given]
            result = emit(name, *map(random.choice, known), **sample.attrs)
            for value in result if isinstance(result, tuple) else (result,):
                made[value.dtype, value.shape].append(value)
        return list(made.values())

    return gc.compile(program).graph(operands)


def graph_of_case(name: str) -> Graph:
    case = CASES[name]
    function = case.native(gc) if case.native else case.function
    assert function is not None
    if case.function is None:  # of a training step, the loss and its gradients
        function = gc.value_and_grad(function)
    return gc.compile(function).graph(*case.arguments(np.random.default_rng(0)))


def graph_of_example() -> Graph:
    from examples.mlp import mlp

    return mlp.graph(gc.spec((64, 256), "f32"))


# ------------------------------------------------------------------------------------------ digests


def digest(texts: Iterable[str]) -> str:
    joined = "\0".join(texts)
    return hashlib.sha256(joined.encode()).hexdigest()[:12] if joined else "-"


def texts_of(graph: Graph, config: Config) -> tuple[list[str], list[str]]:
    """What kernels are compiled from, and their readable sources."""
    compilers = written(pipeline.run(graph, config)[-1].value, config)[0]
    compiled = compilers.cpu.result
    compiled.gpu = compilers.gpu and compilers.gpu.result
    sources = kernel_sources(compiled)
    return list(compiled.texts.values()), list(sources.values())


def line_of(graph: Graph) -> str:
    """Digests of all texts of a program; of the name of the error where it cannot be compiled."""
    cells = []
    for config in (CPU, STRICT, GPU):
        try:
            code, sources = texts_of(graph, config)
        except GraphError as error:
            code = sources = [type(error).__name__]
        cells += [digest(code), digest(sources)] if config is not GPU else [digest(sources)]
    return " ".join(cells)


def lines(only: str) -> Iterator[str]:
    """A line for every case whose name begins so, and one for all of them."""
    made = []
    for name, graph in corpus():
        if name.startswith(only):
            made.append(f"{name} {line_of(graph())}")
            yield made[-1]
    yield f"total {digest(made)}"


@click.command()
@click.argument("only", default="")
@click.option("--compare", type=click.Path(exists=True, path_type=Path), help="a saved list")
def main(only: str, compare: Path | None) -> None:
    """Print the digests of all cases whose names begin with ONLY, or the cases that differ."""
    logging.disable(logging.WARNING)
    if compare is None:
        for line in lines(only):
            print(line, flush=True)
        return
    saved = dict(line.split(" ", 1) for line in compare.read_text().splitlines())
    now = dict(line.split(" ", 1) for line in lines(only))
    names = [n for n in {**saved, **now} if n.startswith(only) and n != "total"]
    different = [name for name in names if saved.get(name) != now.get(name)]
    print("\n".join([*different, f"{len(different)} of {len(names)} cases differ"]))
    sys.exit(DIFFERENT if different else 0)


if __name__ == "__main__":
    main()
