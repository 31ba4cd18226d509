"""Library ops on a GPU: every route assembles for every chip, and gives the reference's results.

What small samples of the ops do not reach is here; test_cuda_gate.py assembles those.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from effort import few
from op_harness import node_of

import graphc as gc
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.compile import compile_ptx
from graphc.codegen.gpu.launch import Launch, Scratch
from graphc.codegen.gpu.library import adapter_launches, code_launches, described, library_launches
from graphc.errors import GraphError
from graphc.ir.op import OPS, Library
from graphc.ir.types import DTYPES

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
gc.sum  # noqa: B018  a public name fills the op table

CHIPS = [chip_of(f"cuda:{name}") for name in ("sm_75", "sm_80", "sm_90")]
MOST_REGISTERS = 65536  # of a multiprocessor
FLOATS = ("f32", "f64")
LIBRARY = sorted(
    name
    for name, op in OPS.items()
    if isinstance(op.lower, Library) and op.lower.kernel is not None and op.samples is not None
)


def places(node: Any) -> list[Any]:
    return [("in", k, 0) for k in range(len(node.inputs))] + [("out", 0, 0)] * 3


def assembled(launches: list[Launch]) -> None:
    """Every kernel becomes a cubin without registers in memory, and a block of it fits."""
    unique = {(one.text, one.buffers): one for one in launches}.values()
    for exact in (False, True):
        fitting({f"k{k}": one for k, one in enumerate(unique) if one.exact is exact})


def fitting(launches: dict[str, Launch]) -> None:
    ptx = compile_ptx(launches, CHIPS[0]) if launches else ""
    for chip in few(CHIPS, 1, len(launches)) if launches else ():
        found = toolkit.assemble(ptx, chip)[1]
        for name, launch in launches.items():
            report, where = found[name], f"{launch.text}\n{chip.name}: {found[name]}"
            assert not report.spills, where
            assert report.registers * launch.threads <= MOST_REGISTERS, where
            assert report.shared <= 48 << 10, where


def array(name: str, *dims: int) -> Any:
    return np.zeros(dims, DTYPES[name].numpy)


def launches(op: str, *operands: Any, strict: bool = True, **attrs: Any) -> list[Launch]:
    node = node_of(OPS[op], operands, attrs)
    lower: Any = OPS[op].lower
    return list(
        code_launches(node, lower.cuda(node, strict, False), places(node), Scratch(), strict)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["u8", "u32", "u64"], 1))
def test_long_rows_are_sorted_by_tiles_and_merges_or_by_digits(name: str) -> None:
    x = array(name, 2, 10_000)
    made = [launches("sort_keys", x), launches("argsort_keys", x)]
    count = 4 if name == "u8" else 3 * x.itemsize
    assert [len(some) for some in made] == [count, count]
    made += [launches("topk_keys", x, k=k) for k in (5, 3000)]
    assert [len(some) for some in made[2:]] == [5 + 2 * x.itemsize, 5]
    assembled([launch for some in made for launch in some])


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["i8", "bool", "f32", "u64", "c128"], 1))
def test_scatters_of_many_positions(name: str) -> None:
    x, index, updates = array(name, 100, 7), array("i32", 300), array(name, 300, 7)
    modes = ["set"] if name == "bool" else ["set", "add"]
    modes += ["mul", "min", "max"] if name in ("i8", "u64", "f32") else []
    made: list[Launch] = []
    for mode in modes:
        for strict in (True, False):
            made += launches("scatter", x, index, updates, strict=strict, mode=mode)
    assembled(made)


@pytest.mark.slow
def test_matrices_of_several_panels() -> None:
    x, b, perm = array("f64", 2, 100, 100), array("f64", 2, 100, 20), array("i64", 2, 100)
    made = [*launches("lu", x), *launches("cholesky", x)]
    assert len(made) == (1 + 4 + 4 + 3) + (1 + 4 + 3)
    for transposed in (False, True):
        made += launches("lu_solve", x, perm, b, transposed=transposed)
    assembled(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["f32", "i64"], 1))
def test_running_totals_of_few_long_rows(name: str) -> None:
    x = array(name, 100_000)
    made = launches("cumsum", x, strict=False, axis=0, reverse=False)
    assert len(made) == 3  # parts are folded, their folds made to run, and the result written
    made += launches("cummax", x, axis=0, reverse=True)
    made += launches("cumsum", x.reshape(-1, 2), strict=False, axis=0, reverse=False)
    assert len(made) > 9  # columns: levels of chunks, down and up
    if name.startswith("f"):
        made += launches("recurrence", x, x, strict=False, axis=0, reverse=False)
    assembled(made)


def test_places_that_overlap() -> None:
    index = array("i32", 20, 300)
    made = [launches("spread", index, array(n, 20, 300), strict=False, extent=99) for n in FLOATS]
    assert [len(some) for some in made] == [2, 2]
    assembled([launch for some in made for launch in some])


@pytest.mark.slow
@pytest.mark.parametrize("name", few(LIBRARY, 2))
def test_the_function_of_the_cpu_compiles_for_a_gpu(name: str) -> None:
    """What the adapter can do for an op without device code: all that there is."""
    made = []
    for sample in OPS[name].samples():
        if sample.good and all(np.asarray(o).size for o in sample.operands):
            node = node_of(OPS[name], sample.operands, sample.attrs)
            made += adapter_launches(node, places(node), Scratch())
            if len(made) == 2:
                break
    assembled(made)


def test_custom_ops() -> None:
    """A user's function is run by one thread, one for GPUs by a thread per element."""
    import numba

    @numba.njit
    def half(x: Any) -> Any:
        return x * 0.5

    @gc.custom_op("by_one_thread")
    def halved(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = half(x[i, j]) + np.sin(x[i, j])

    def each(i: int, x: Any, out: Any) -> None:
        out[i // x.shape[1], i % x.shape[1]] = x[i // x.shape[1], 0]

    @gc.custom_op("by_many_threads", cuda=each)
    def first(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i, :] = x[i, 0]

    @gc.custom_op("of_a_truth")
    def flipped(x: Any, out: Any) -> int:
        out[()] = not x[()]
        return 0

    made = []
    operands = {"by_one_thread": array("f32", 30, 20), "by_many_threads": array("f64", 30, 20)}
    for name, x in (*operands.items(), ("of_a_truth", array("bool"))):
        node = node_of(OPS[name], (x,), {})
        made += library_launches(node, places(node), Scratch())
    assert [launch.params for launch in made] == [(1,), (600,), (1,)]
    assert [launch.blocks for launch in made] == [1, 3, 1]
    assembled(made)


def test_a_custom_op_that_no_gpu_can_run_is_refused() -> None:
    @gc.custom_op("made_of_lists")
    def made(x: Any, out: Any) -> None:
        out[:] = sorted([str(v) for v in x])

    @gc.custom_op("returns_halves")
    def halves(x: Any, out: Any) -> float:
        out[0] = x[0]
        return 0.5

    for name in ("made_of_lists", "returns_halves"):
        node = node_of(OPS[name], (array("f32", 3),), {})
        with pytest.raises(GraphError, match="Numba cannot compile"):
            assembled(list(library_launches(node, places(node), Scratch())))


def test_the_text_of_a_function_says_all_it_refers_to() -> None:
    def scaled(factor: float) -> Any:
        def function(x: Any, out: Any) -> None:
            out[0] = x[0] * factor

        return function

    one, same, other = (described(scaled(factor)) for factor in (2.0, 2.0, 3.0))
    assert one == same
    assert one != other


PLANNED = """
import sys
import numpy as np
import graphc as gc
from graphc.codegen.build import Compilers, writer_of
from graphc.config import Config
from graphc.frontend.compile.build import stages_of

def function(x, i):
    y = np.cumsum(x, axis=0) * 2
    y[i] += np.linalg.cholesky(y)[i]
    return np.sort(y), gc.flatnonzero(y > 0, size=3)

config = Config.create(target="cuda:sm_90")
graph = gc.compile(function).graph(np.ones((500, 500), np.float32), np.arange(300))
compilers = Compilers(config)
planned = stages_of(graph, config)[-1].value
for graph in getattr(planned, "graphs", (planned,)):
    writer_of(graph, config, compilers, {}).write()
print(len(compilers.gpu.result.launches), "numba" in sys.modules)
"""


def test_launches_are_planned_without_numba() -> None:
    """What the cache knows is not compiled again, and Numba takes long to import."""
    done = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels, imported = done.stdout.split()
    assert int(kernels) > 12
    assert imported == "False"
