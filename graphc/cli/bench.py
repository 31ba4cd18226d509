"""`graphc bench`: how long the calls of a graph take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from graphc.cli.common import (
    MODEL,
    bindable,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    random_array,
    without_prints,
)
from graphc.cli.compile import binding_option, parse_bindings
from graphc.errors import GraphError


@click.command("bench")
@click.argument("model", type=MODEL)
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Time to spend.")
@click.option("--reference", is_flag=True, help="Time the reference interpreter too.")
@click.option(
    "--beside",
    type=click.Choice(["onnxruntime", "openvino"]),
    help="Time another runtime in turn with it.",
)
@binding_option
@config_options
@json_option
def bench_command(
    model: Path,
    seconds: float,
    reference: bool,
    beside: str | None,
    bindings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Time warm calls of MODEL on random arrays, those of open sizes of 32 where none is given."""
    if beside is not None:
        from graphc.cli.beside import compare, print_comparison

        binding = parse_bindings(bindings)
        with without_prints():
            rows = compare(model, beside, seconds, binding, make_config(options))
        print_json({"beside": beside, "rows": rows}) if as_json else print_comparison(beside, rows)
        return
    with without_prints():
        record = _compiled(model, seconds, parse_bindings(bindings), options, reference)
    if as_json:
        print_json(record)
        return
    if record["assumed"]:
        sizes = ", ".join(f"{name}={size}" for name, size in record["assumed"].items())
        click.echo(f"open sizes: {sizes}; --bind NAME=SIZE gives others")
    click.echo(
        f"load and compile {record['compile_ms']:.1f} ms, first call {record['first_ms']:.2f} ms"
    )
    for name in ("compiled", "reference"):
        if name in record:
            found = record[name]
            click.echo(
                f"{name:<10} median {found['median_us']:.1f} us, best {found['best_us']:.1f} us, "
                f"{found['calls']} calls"
            )
    if record["flops"]:
        click.echo(f"{record['flops'] / record['compiled']['best_us'] / 1e3:.1f} GFLOP/s at best")


def _compiled(
    model: Path, seconds: float, binding: dict[str, int], options: dict[str, Any], reference: bool
) -> dict[str, Any]:
    import numpy as np

    from graphc.cli.audit import audit
    from graphc.frontend.compile.open_sizes import USUAL
    from graphc.frontend.files.saved_variables import values_of
    from graphc.frontend.trace.spec import symbols_of
    from graphc.ir.types import Type, substitute
    from graphc.ops.reference.interpreter import interpret

    started = perf_counter()
    loaded = load_graph(model, make_config(options))
    unbound = sorted(symbols_of(loaded.types) - binding.keys())
    assumed = dict.fromkeys(unbound, USUAL)
    sizes = {**assumed, **binding}
    types = [substitute(kind, sizes) for kind in bindable(loaded.types, sizes)]
    rng = np.random.default_rng(0)
    arrays = [random_array(rng, kind) for kind in types if isinstance(kind, Type)]
    executable = loaded.build(*(a.shape for a in arrays)).executable
    compiled = perf_counter()
    executable.run(arrays)
    first = perf_counter()
    graph = loaded.bound_to(arrays)
    record = {
        "assumed": assumed,
        "compile_ms": (compiled - started) * 1e3,
        "first_ms": (first - compiled) * 1e3,
        "flops": audit(graph)["total"]["flops"],
        "compiled": measure(lambda: executable.run(arrays), seconds),
    }
    if reference:
        state = {key: item.array for key, item in values_of(graph).items()}
        record["reference"] = measure(lambda: interpret(graph, arrays, state=state), seconds)
    return record


def measure(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Median and best time of repeated calls within a time budget, in microseconds."""
    if not 0 < seconds <= 600:
        raise GraphError(f"--seconds must be between 0 and 600, got {seconds}")
    times: list[float] = []
    end = perf_counter() + seconds
    while not times or perf_counter() < end:
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    times.sort()
    return {
        "median_us": times[len(times) // 2] * 1e6,
        "best_us": times[0] * 1e6,
        "calls": len(times),
    }
