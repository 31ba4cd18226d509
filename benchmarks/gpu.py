"""`python -m benchmarks.gpu`: graphc on gpu:0 beside PyTorch, JAX and CuPy, where they are there.

Arguments and results stay on the GPU.  Beside each case stand the time of a call, by the clock of
the host from an idle GPU to an idle GPU, and the time that the device needs for it: of graphc by
events around replays of what a call launches, of the others by calls that queue up.  Results are
compared on the GPU.  Everybody multiplies f32 as f32, unless `--tf32` is given.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.gpu_cases import CASES, SMALL, Case, host_array
from benchmarks.gpu_report import Machine, failures, line, table
from graphc.runtime.cuda import cublas

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
GPU = ["gpu:0"]
COPY_BYTES, COPIES = 1 << 29, 20
QUEUE = 0.05  # seconds of calls that are queued at once
PEERS = ("torch", "torch.compile", "jax", "cupy")


@functools.cache
def torch_there() -> bool:
    """Whether PyTorch is installed and sees the GPU."""
    if find_spec("torch") is None:
        return False
    import torch as library

    return bool(library.cuda.is_available())


@dataclass(frozen=True)
class Run:
    """A prepared case: `call` starts a call, `wait` has the device finish all of them, `device` is
    the seconds of a call on the device, measured for so many seconds; `products` says how many
    products of matrices each route makes."""

    call: Callable[[], Any]
    wait: Callable[[], Any]
    device: Callable[[float], float]
    products: Callable[[], dict[str, int]] = dict


# ---------------------------------------------------------------------------- who runs a case how


def tree_map(value: Any, move: Callable[[Any], Any]) -> Any:
    """The same nesting with every leaf moved."""
    if isinstance(value, dict):
        return {key: tree_map(item, move) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(tree_map(item, move) for item in value)
    return move(value)


class Arguments:
    """The arrays of operands on the device of a library; the latest are kept for other cases."""

    kept_bytes = 12 << 30

    def __init__(self, put: Callable[[np.ndarray], Any]) -> None:
        self.put = put
        self.found: dict[Any, Any] = {}

    def of(self, case: Case) -> tuple[Any, ...]:
        if case.nested is not None:
            return tree_map(case.nested(), self.put)
        made = tuple(self.one(operand) for operand in case.operands)
        while sum(operand.nbytes for operand in self.found) > self.kept_bytes:
            del self.found[next(iter(self.found))]
        return made

    def one(self, operand: Any) -> Any:
        value = self.found.pop(operand, None)
        self.found[operand] = self.put(host_array(operand)) if value is None else value
        return self.found[operand]


def queued(call: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    """Seconds of a call of those that follow each other without a pause of the host."""
    count, samples = 1, []
    started = time.perf_counter()
    while len(samples) < 3 or time.perf_counter() - started < seconds:
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        samples.append((time.perf_counter() - begin) / count)
        if count == 1:
            count = max(2, min(200, round(QUEUE / samples.pop())))
    return statistics.median(samples)


@functools.cache
def graphc_arguments() -> Arguments:
    import graphc as gc

    return Arguments(lambda value: gc.to_device(value, GPU[0]))


def program(case: Case) -> Callable[..., Any]:
    """What graphc compiles."""
    import graphc as gc

    if case.graphc is not None:
        return functools.partial(case.graphc, gc)
    return functools.partial(case.array, np)  # type: ignore[arg-type]


def in_graphc(case: Case) -> Any:
    """The compiled function of a case."""
    import graphc as gc

    return gc.compile(program(case), devices=GPU)


def graphc(case: Case, tf32: bool) -> Run:
    function = in_graphc(case)
    arguments = graphc_arguments().of(case)
    last: list[Any] = []

    def call() -> Any:
        last[:] = [function.resident(*arguments)]
        return last[0]

    def device(seconds: float) -> float:
        return replayed(function.executable(*arguments), call, seconds)

    def products() -> dict[str, int]:
        return routes(function.executable(*arguments))

    return Run(call, lambda: waited(last), device, products)


def waited(results: Any) -> Any:
    """Results of graphc, when they are there."""
    return tree_map(results, lambda result: result.wait())


def replayed(executable: Any, call: Callable[[], Any], seconds: float) -> float:
    """Seconds that the device takes for what a call launches; NaN where the host takes part."""
    from graphc.runtime.cuda.interface import COMPUTE

    results = None
    for _ in range(3):  # what happens often becomes a graph, for results of these addresses
        results = None
        results = waited(call())  # before the next one, which so has the same frame
    frame = executable._frames[0].own
    stretch = [*frame.stretches.values()][-1] if frame.stretches else None
    if stretch is None or any(s.row >= 0 for s in frame.stretches.values()):
        return float("nan")
    driver = frame.driver

    def block(count: int) -> float:
        first, last = driver.event(timed=True), driver.event(timed=True)
        driver.record(first, COMPUTE)
        for _ in range(count):
            stretch.run()
        driver.record(last, COMPUTE)
        driver.settle(last)
        return driver.seconds(first, last) / count

    count = max(1, min(200, round(QUEUE / max(block(1), 1e-6))))
    started, samples = time.perf_counter(), []
    while len(samples) < 3 or time.perf_counter() - started < seconds:
        samples.append(block(count))
    del results
    return statistics.median(samples)


def routes(executable: Any) -> dict[str, int]:
    """How many products of matrices each route makes."""
    found = [route.name for part in executable.parts for route in part.products.routes.values()]
    return {name: found.count(name) for name in sorted(set(found))}


@functools.cache
def torch_arguments() -> Arguments:
    import torch as library

    library.set_default_device("cuda")

    def put(value: np.ndarray) -> Any:
        if value.dtype.name == "bfloat16":
            return library.from_numpy(value.view(np.int16)).to("cuda").view(library.bfloat16)
        return library.from_numpy(value).to("cuda")

    return Arguments(put)


def torch(case: Case, tf32: bool, compiled: bool = False) -> Run:
    import torch as library

    library.backends.cuda.matmul.allow_tf32 = tf32
    library.backends.cudnn.allow_tf32 = tf32
    library.backends.cudnn.benchmark = True
    library.set_grad_enabled(False)
    arguments = torch_arguments().of(case)
    if case.steps is not None:
        call = case.steps(library, *arguments)
    else:
        said = case.torch
        program = functools.partial(said, library)  # type: ignore[arg-type]
        call = functools.partial(library.compile(program) if compiled else program, *arguments)
    return measured_in_a_queue(call, library.cuda.synchronize)


def measured_in_a_queue(call: Callable[[], Any], wait: Callable[[], Any]) -> Run:
    return Run(call, wait, functools.partial(queued, call, wait))


@functools.cache
def jax_arguments() -> Arguments:
    import jax as library

    return Arguments(library.device_put)


def jax(case: Case, tf32: bool) -> Run:
    import jax as library

    if not any(device.platform == "gpu" for device in library.devices()):
        raise RuntimeError("this JAX has no GPU")
    library.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")
    if case.jax is not None:
        program = functools.partial(case.jax, library)
    else:
        program = functools.partial(case.array, library.numpy)  # type: ignore[arg-type]
    function, arguments = library.jit(program), jax_arguments().of(case)
    last: list[Any] = []

    def call() -> Any:
        last[:] = [function(*arguments)]
        return last[0]

    return measured_in_a_queue(call, lambda: library.block_until_ready(last))


@functools.cache
def cupy_arguments() -> Arguments:
    import cupy as library

    return Arguments(library.asarray)


def cupy(case: Case, tf32: bool) -> Run:
    import cupy as library

    if case.array is None or any(operand.dtype == "bf16" for operand in case.operands):
        raise NotImplementedError
    call = functools.partial(case.array, library, *cupy_arguments().of(case))
    return measured_in_a_queue(call, library.cuda.get_current_stream().synchronize)


PREPARE: dict[str, Callable[[Case, bool], Run]] = {
    "graphc": graphc,
    "torch": torch,
    "torch.compile": functools.partial(torch, compiled=True),
    "jax": jax,
    "cupy": cupy,
}


def takes_part(name: str, case: Case) -> bool:
    """Whether a library has this case, in words that differ from those of another one."""
    if name == "torch":
        return case.torch is not None or case.steps is not None
    if name == "torch.compile":
        return case.compiled and case.torch is not None
    return name == "graphc" or case.array is not None or (name == "jax" and case.jax is not None)


# ------------------------------------------------------------------------------------ comparison


def leaves(result: Any) -> list[Any]:
    """The arrays of a result on the device, as tensors where PyTorch is there, else on the host."""
    if isinstance(result, list | tuple):
        return [leaf for item in result for leaf in leaves(item)]
    if not torch_there():
        found = result.get() if hasattr(result, "get") else result
        return [np.asarray(found).astype(np.float64)]
    import torch as library

    if not isinstance(result, library.Tensor):
        result = library.from_dlpack(result)
    return [result.to(library.float64)]


def difference(found: Any, wanted: Any) -> float:
    """The largest absolute difference, relative to the largest magnitude, of any array."""
    worst = 0.0
    for a, b in zip(leaves(found), leaves(wanted), strict=False):  # the first ones are shared
        if a.shape != b.shape:
            return float("inf")
        error = float(abs(a - b).max()) / max(float(abs(b).max()), 1e-30)
        worst = max(worst, error if error == error else float("inf"))
    return worst


# ------------------------------------------------------------------------------------ measuring


def copy_rate() -> float:
    """Bytes per second, read and written, of a copy from the GPU's memory to itself."""
    from graphc.runtime.cuda.drivers import open_driver
    from graphc.runtime.cuda.interface import COMPUTE
    from graphc.runtime.devices.registry import present_chip

    driver = open_driver(present_chip(), GPU[0])
    driver.enter()
    source, target = driver.allocate(COPY_BYTES), driver.allocate(COPY_BYTES)
    seconds = []
    for _ in range(COPIES):
        first, last = driver.event(timed=True), driver.event(timed=True)
        driver.record(first, COMPUTE)
        driver.copy(target, source, COPY_BYTES, COMPUTE)
        driver.record(last, COMPUTE)
        driver.settle(last)
        seconds.append(driver.seconds(first, last))
    driver.free(source)
    driver.free(target)
    return 2 * COPY_BYTES / statistics.median(seconds)


def multiply_rate(case: Case, stated: float) -> float:
    """FLOP/s of PyTorch's product of large matrices; what the chip is said to do without it."""
    if not torch_there():
        return stated
    return case.flops / torch(case, False).device(0.1)


def machine() -> Machine:
    rates = {"f32": 67e12, "half": 989e12}  # of an H100 SXM
    largest = {"f32": "matmul-f32-8192", "half": "matmul-bf16-8192"}
    rates = {unit: multiply_rate(CASES[largest[unit]], rate) for unit, rate in rates.items()}
    return Machine(copy_rate(), rates)


def waits(run: Run, seconds: float) -> dict[str, float]:
    """Quartiles of the seconds of a call that the host waits for."""
    samples, started = [], time.perf_counter()
    while len(samples) < 5 or (time.perf_counter() - started < seconds and len(samples) < 500):
        begin = time.perf_counter()
        run.call()
        run.wait()
        samples.append(time.perf_counter() - begin)
    low, median, high = statistics.quantiles(samples, n=4)
    return {"low": low, "call": median, "high": high}


def one(case: Case, names: list[str], seconds: float, tf32: bool) -> dict[str, Any]:
    """What each of them takes for a case; whatever goes wrong becomes a result that says so.

    The judge is the first peer that runs.
    """
    report: dict[str, Any] = {}
    wanted: Any = None
    order = sorted(names, key=lambda name: name == "graphc")  # the judges come first
    for name in order:
        if not takes_part(name, case):
            continue
        try:
            begin = time.perf_counter()
            run = PREPARE[name](case, tf32)
            result = run.call()
            run.wait()
            report[name] = found = {"first": time.perf_counter() - begin}
            if case.judged and wanted is not None:
                found["error"] = difference(result, wanted)
                if found["error"] > case.tolerance * (100 if tf32 else 1):
                    found["failed"] = f"differs by {found['error']:.1e}"
            wanted = result if wanted is None else wanted
            result = None
            found |= waits(run, seconds)
            found["device"] = run.device(seconds)
            found |= {"products": run.products()} if name == "graphc" else {}
        except NotImplementedError:
            continue
        except Exception as problem:  # noqa: BLE001 - any failure of a library is a result
            report.setdefault(name, {})["failed"] = f"{type(problem).__name__}: {problem}"[:600]
    return report


def compile_all(cases: list[Case]) -> None:
    """Fill the cache of kernels; a GPU that is there tells the chip."""
    import graphc as gc

    for case in cases:
        begin = time.perf_counter()
        try:
            arguments = case.nested() if case.nested else case.operands
            specs = tree_map(
                arguments, lambda o: gc.spec(o.shape, getattr(o.dtype, "name", o.dtype))
            )
            in_graphc(case).executable(*specs)
            print(f"{case.name}: compiled in {time.perf_counter() - begin:.1f} s", flush=True)
        except Exception as problem:  # noqa: BLE001 - as above
            print(f"{case.name}: {type(problem).__name__}: {problem}"[:600], flush=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "-c", "chosen", multiple=True, help="Cases: a name or a glob (repeatable).")
@click.option("--small", is_flag=True, help="The cases of `benchmarks`, which a launch bounds.")
@click.option("--library", "-l", "wanted", multiple=True, help="Only these beside graphc.")
@click.option("--seconds", default=0.1, show_default=True, help="Per case, library and figure.")
@click.option("--limit", default=0.0, help="Seconds after which no further case begins.")
@click.option("--tf32", is_flag=True, help="The others may multiply f32 in TF32.")
@click.option("--compile/--no-compile", "compiled", help="torch.compile where it matters.")
@click.option("--compile-only", is_flag=True, help="Fill graphc's cache of kernels.")
@click.option("--share", default="0/1", help="The cases k, k + n ... of n processes: `k/n`.")
@click.option("--output", type=click.Path(path_type=Path), help="JSON; the table is beside it.")
def main(
    chosen: tuple[str, ...],
    small: bool,
    wanted: tuple[str, ...],
    seconds: float,
    limit: float,
    tf32: bool,
    compiled: bool,
    compile_only: bool,
    share: str,
    output: Path | None,
) -> None:
    """Time graphc on gpu:0 and the libraries that are installed."""
    started = time.perf_counter()
    known = SMALL() if small else CASES
    cases = [c for n, c in known.items() if not chosen or any(fnmatch(n, g) for g in chosen)]
    if not cases:
        raise click.UsageError(f"no such case; there are: {', '.join(known)}")
    first, _, count = share.partition("/")
    cases = cases[int(first) :: int(count)]
    if compile_only:
        compile_all(cases)
        return
    names = ["graphc"]
    for name in PEERS:
        if (wanted and name not in wanted) or (name == "torch.compile" and not compiled):
            continue
        if find_spec(name.partition(".")[0]) is None:
            print(f"left out: {name} is not installed")
        else:
            names.append(name)
    rates = machine()
    print(rates, cublas.described(), sep="\n", flush=True)
    results: dict[str, Any] = {}
    for case in cases:
        if limit and time.perf_counter() - started > limit:
            print(f"left out, as time is up: {case.name}")
            continue
        results[case.name] = one(case, names, seconds, tf32)
        passed = time.perf_counter() - started
        print(f"{passed:6.1f} s  {line(case, results[case.name], rates)}", flush=True)
        if output is not None:
            kept = {"copy": rates.copy, "multiply": rates.multiply, "results": results}
            output.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n")
    text = table(known, results, names, rates)
    if output is not None:
        output.with_suffix(".md").write_text(text)
    print(text)
    for found in failures(results):
        print(found)


if __name__ == "__main__":
    main()
