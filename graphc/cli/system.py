"""`graphc passes`, `graphc devices` and `graphc cache`."""

from __future__ import annotations

import inspect
import os
import platform
import time
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from graphc.cli.common import (
    MODEL,
    complete_feeds,
    json_option,
    load_graph,
    print_json,
    print_table,
)
from graphc.errors import GraphError


@click.command("passes")
@click.option("--ops", is_flag=True, help="List the ops instead, and how each becomes code.")
@json_option
def passes_command(ops: bool, as_json: bool) -> None:
    """List the stages of the compiler, in order, how the values of each are related to those that
    they stand for, and what holds from there on."""
    from graphc.passes.pipeline import STAGES

    if ops:
        _print_ops(as_json)
        return
    rows = []
    for number, stage in enumerate(STAGES):
        ensures = [getattr(check, "__name__", "").replace("_", " ") for check in stage.ensures]
        paragraph = (inspect.getdoc(stage.run) or "").partition("\n\n")[0]
        summary = " ".join(paragraph.split()).removesuffix(".").partition(". ")[0] + "."
        rows.append(
            {
                "number": number,
                "name": stage.name,
                "folder": stage.folder,
                "runs_on": stage.over.value,
                "cycle": stage.cycle,
                "optional": stage.optional,
                "keeps": stage.keeps.value,
                "ensures": ", ".join(ensures),
                "summary": summary,
            }
        )
    if as_json:
        print_json(rows)
        return
    for folder, stages in groupby(rows, key=itemgetter("folder")):
        click.echo(f"graphc/passes/{folder}")
        shown = [
            (
                f"{row['number']}{'*' * bool(row['cycle'])}",
                row["name"],
                row["summary"],
                row["keeps"],
                row["ensures"],
            )
            for row in stages
        ]
        print_table("", ["#", "stage", "what it does", "values are", "from here on"], shown)
        click.echo()
    click.echo("* with its neighbours in turn, until none of them changes anything")


def _print_ops(as_json: bool) -> None:
    import graphc.ops  # noqa: F401  (fills the table)
    from graphc.codegen.gpu.routes import route
    from graphc.ir.op import OPS

    rows = []
    for name in sorted(OPS):
        op = OPS[name]
        kind = type(op.lower).__name__.lower()
        attrs = ", ".join(attr.name for attr in op.attrs)
        rows.append((name, kind, route(op), attrs, " ".join(op.dtypes), op.doc.split("\n")[0]))
    if as_json:
        keys = ("name", "lowering", "cuda", "attributes", "dtypes", "summary")
        print_json([dict(zip(keys, row)) for row in rows])
        return
    titles = ["op", "becomes", "on a GPU", "attributes", "operand dtypes", "what it is"]
    print_table("ops", titles, rows)


@click.command("devices")
@click.option("--calibrate", is_flag=True, help="Measure what the cost model needs and store it.")
@click.option("--model", type=MODEL, help="With --calibrate: time the kernels of this graph, too.")
@json_option
def devices_command(calibrate: bool, model: Path | None, as_json: bool) -> None:
    """List the devices of this machine, or measure them."""
    if calibrate:
        _calibrate(model, as_json)
        return
    if model is not None:
        raise click.UsageError("--model belongs to --calibrate")
    from graphc.runtime.cuda import cublas

    gpus, note = _gpus()
    rows = [_cpu(), *gpus]
    if as_json:
        keys = ("name", "model", "units", "memory", "features")
        print_json([dict(zip(keys, row)) for row in rows])
        return
    print_table("devices", ["device", "model", "cores", "memory", "features"], rows)
    click.echo()
    for line in filter(None, (note, _gpu_compiler(), cublas.described() if gpus else "")):
        click.echo(line)
    click.echo()
    titles = ["type", "runs on", "GFLOP/s", "GB/s", "call", "transfer", "GB/s"]
    print_table("types of devices", titles, [_type_row(kind) for kind in _types()])


def _types() -> list[Any]:
    """The registered types of devices, with calibrated rates where there are any."""
    from graphc.passes.placement.measured import default_path, load
    from graphc.runtime.devices.registry import kinds

    measured = load(default_path(), missing=True).kinds
    return [measured.get(kind.type, kind) for kind in kinds()]


def _type_row(kind: Any) -> tuple[str, ...]:
    rates, link = kind.rates, kind.link
    speeds = [f"{rate / 1e9:.1f}" for rate in (rates.flops, rates.bytes)]
    delays = [f"{seconds * 1e6:.3g} us" for seconds in (rates.launch, link.latency)]
    return kind.type, kind.runs_on, *speeds, *delays, f"{link.bandwidth / 1e9:.1f}"


def _calibrate(model: Path | None, as_json: bool) -> None:
    """Measure rates, and the kernels of a model on random arguments; keep them in the cache."""
    from graphc.frontend.compile.measure_devices import calibrate, observe
    from graphc.passes.placement.measured import store

    found = calibrate()
    path = store(found)
    kernels = 0
    if model is not None:
        loaded = load_graph(model)
        arrays = complete_feeds({}, loaded.params, loaded.declared, seed=0)
        built = loaded.build()
        seen = observe(built, [arrays[name] for name in loaded.params])
        kernels = len(seen.seconds)
        store(seen)
    (kind,) = found.kinds.values()
    rates, link = kind.rates, kind.link
    record = {
        "device": kind.type,
        "flops_per_second": rates.flops,
        "bytes_per_second": rates.bytes,
        "launch_us": rates.launch * 1e6,
        "latency_us": link.latency * 1e6,
        "transfer_bytes_per_second": link.bandwidth,
        "kernels": kernels,
        "file": str(path),
    }
    if as_json:
        print_json(record)
        return
    click.echo(
        f"{kind.type}: {rates.flops / 1e9:.1f} GFLOP/s, {rates.bytes / 1e9:.1f} GB/s, "
        f"{rates.launch * 1e6:.3f} us per kernel call; transfers {link.latency * 1e6:.2f} us and "
        f"{link.bandwidth / 1e9:.1f} GB/s (one thread per device)"
    )
    if model is not None:
        click.echo(f"{kernels} kernels of {model.name} timed")
    click.echo(f"stored in {path}")


def _cpu() -> tuple[Any, ...]:
    from graphc.runtime.devices.device import host_features

    features = host_features() or frozenset()
    level = next((f for f in ("avx512f", "avx2", "avx", "sse4.2", "neon") if f in features), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return "cpu:0", _cpu_model(), cores, f"{memory / 2**30:.1f} GiB", level


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _gpus() -> tuple[list[tuple[Any, ...]], str]:
    """CUDA devices, asked from the driver, and why there is none."""
    from graphc.runtime.cuda import driver
    from graphc.runtime.devices.registry import simulated

    if simulated():
        return [], "GPUs are simulated: NUMBA_ENABLE_CUDASIM is set"
    try:
        rows = [_gpu(number) for number in range(driver.ask(driver.api(), "cuDeviceGetCount"))]
    except (GraphError, driver.Failed) as error:
        return [], f"no GPU: {getattr(error, 'message', error)}"
    return rows, "" if rows else "no GPU: the driver knows of none"


def _gpu(number: int) -> tuple[Any, ...]:
    from graphc.runtime.cuda.driver import api, ask, capability, model

    functions = api()
    device = ask(functions, "cuDeviceGet", number)
    kind = functions.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    units = ask(functions, "cuDeviceGetAttribute", kind, device)
    memory = f"{ask(functions, 'cuDeviceTotalMem', device) / 2**30:.1f} GiB"
    return f"gpu:{number}", model(functions, device), units, memory, capability(functions, device)


def _gpu_compiler() -> str:
    """What compiles for GPUs, or why nothing does."""
    from graphc.codegen.gpu import toolkit

    try:
        toolkit.check()
    except GraphError as error:
        return f"no compiler for GPUs: {error.message}; {error.hint}"
    return f"compiler for GPUs: {toolkit.versions()}"


@click.group("cache")
def cache_command() -> None:
    """List, fill or clear the cache of compiled kernels."""


@cache_command.command("ls")
@json_option
def cache_ls(as_json: bool) -> None:
    """List the cached object files."""
    from graphc.codegen import cache

    store = cache.default()
    packs = store.entries()
    if as_json:
        print_json(
            {
                "folder": str(store.root),
                "bytes": store.size(),
                "packs": [
                    {"name": p.name, "kernels": len(p.symbols), "bytes": p.nbytes} for p in packs
                ],
            }
        )
        return
    rows = [(p.name[:16], len(p.symbols), p.nbytes, _when(p.modified)) for p in packs[:50]]
    print_table("cache", ["pack", "kernels", "bytes", "written"], rows)
    more = f", {len(packs) - 50} more files" if len(packs) > 50 else ""
    click.echo(f"{store.root}: {store.size():,} bytes in {len(packs)} files{more}")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@cache_command.command("fill")
@click.option(
    "--dtype", "dtypes", multiple=True, default=("f32",), show_default=True, metavar="TYPE",
    help="Products of this data type; may be given several times.",
)  # fmt: skip
@json_option
def cache_fill(dtypes: tuple[str, ...], as_json: bool) -> None:
    """Compile ahead what programs of this machine share: what runs them, and products."""
    from graphc.codegen import cache
    from graphc.codegen.shared_code import fill
    from graphc.config import Config

    compiled, cached = fill(Config.create(), dtypes)
    store = cache.default()
    if as_json:
        print_json({"folder": str(store.root), "compiled": compiled, "cached": cached})
    else:
        click.echo(f"{store.root}: {compiled} objects compiled, {cached} were there")


@cache_command.command("clear")
@json_option
def cache_clear(as_json: bool) -> None:
    """Remove every cached object file."""
    from graphc.codegen import cache

    store = cache.default()
    freed = store.clear()
    if as_json:
        print_json({"folder": str(store.root), "freed": freed})
    else:
        click.echo(f"{store.root}: {freed:,} bytes freed")
