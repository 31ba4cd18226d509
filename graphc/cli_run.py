"""`graphc run`: a graph, a compiled graph or a dumped stage on arrays from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli import Mismatch
from graphc.cli_common import (
    MODEL,
    complete_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    print_table,
    progress,
    read_feeds,
    write_results,
)
from graphc.cli_trace import BLAMED, COLUMNS, Tracer, as_dicts
from graphc.errors import GraphError

if TYPE_CHECKING:
    import numpy as np

_SHOWN_ELEMENTS = 6
_TOLERANCE = {"f16": 1e-2, "bf16": 5e-2, "f32": 1e-4, "c64": 1e-4, "f64": 1e-9, "c128": 1e-9}


@click.command("run")
@click.argument("model", type=MODEL)
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help=".npy, .npz or a number.")
@click.option("-o", "--output", type=MODEL, help="Write the results to this .npz file.")
@click.option("--engine", type=click.Choice(["compiled", "reference"]), default="compiled")
@click.option(
    "--seed", type=click.IntRange(0), help="Draw the parameters that have no feed from this seed."
)
@click.option("--check", is_flag=True, help="Compare compiled and reference results; exit 3.")
@click.option("--rebuild", is_flag=True, help="Compile the graph inside a .gcx file again.")
@click.option(
    "--trace",
    "trace_file",
    type=MODEL,
    metavar="FILE",
    help="Write what ran when: .json for chrome://tracing or Perfetto, .html for a page.",
)
@config_options
@json_option
def run_command(
    model: Path,
    feeds: tuple[str, ...],
    output: Path | None,
    engine: str,
    seed: int | None,
    check: bool,
    rebuild: bool,
    trace_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL (.gir, .gcx or any file of a dump) and print or write its results."""
    if trace_file is not None and engine == "reference":
        raise GraphError("--trace shows compiled runs", hint="leave --engine reference out")
    given = read_feeds(feeds)
    compiled = model.suffix == ".gcx" and not rebuild
    if compiled and engine == "compiled" and not check:
        tracer = Tracer(trace_file)
        names, results = _run_compiled(model, given, seed, tracer, options)
    else:
        config = make_config(options)
        tracer = Tracer(trace_file, config)
        loaded = load_graph(model, config)
        names, results = _run_graph(loaded, given, seed, (engine, check), tracer)
    if output is not None:
        write_results(output, names, results)
    _report(names, results, output, tracer, as_json)


def _run_compiled(
    model: Path,
    feeds: dict[str, Any],
    seed: int | None,
    tracer: Tracer,
    options: dict[str, Any],
) -> tuple[tuple[str, ...], list[Any]]:
    """A .gcx file, without importing the compiler."""
    from graphc.runtime.loaded import load

    for name, value in options.items():
        if value not in (None, ()) and name != "threads":
            option = name.replace("_", "-")
            raise GraphError(
                f"--{option} has no effect on {model.name}, which is compiled already",
                hint="--rebuild compiles the graph that the file holds",
            )

    loaded = load(model, threads=options.get("threads"))
    if seed is not None:
        from graphc.ir.types import DTYPES, tensor

        slots = loaded.executable.params
        types = tuple(tensor(DTYPES[slot.dtype], slot.shape) for slot in slots)
        feeds = complete_feeds(feeds, loaded.params, types, seed)
    arrays = loaded.arrays(loaded.arrange((), feeds))
    return loaded.result_names, tracer.run(loaded.executable, arrays)


def _run_graph(
    loaded: Any,
    feeds: dict[str, Any],
    seed: int | None,
    engines: tuple[str, bool],
    tracer: Tracer,
) -> tuple[tuple[str, ...], list[Any]]:
    engine, check = engines
    feeds = complete_feeds(feeds, loaded.params, loaded.types, seed)
    values = loaded.arrange((), feeds)
    both = [_compiled_with(tracer), _reference_from(loaded)]
    if engine == "reference":
        both.reverse()
    results = both[0](loaded, values)
    if check:
        other = both[1](loaded, values)
        _compare(loaded.result_names, results, other)
    return loaded.result_names, results


def _compiled_with(tracer: Tracer) -> Callable[[Any, list[Any]], list[Any]]:
    """The compiler."""

    def run(loaded: Any, values: list[Any]) -> list[Any]:
        arrays = loaded.check(values)
        with progress("compiling", len(loaded.graph)):
            built = loaded.build(*(a.shape for a in arrays))
        results: list[Any] = tracer.run(built.executable, arrays, built)
        return results

    return run


def _reference_from(loaded: Any) -> Callable[[Any, list[Any]], list[Any]]:
    """The interpreter, which finds variables as they are now and does not change them."""
    from graphc.frontend.limits import check_memory
    from graphc.frontend.stored import values_of
    from graphc.ops.interpret import interpret

    state = {key: item.array for key, item in values_of(loaded.graph).items()}

    def run(loaded: Any, values: list[Any]) -> list[Any]:
        arrays = loaded.check(values)
        graph = loaded.bound(loaded.bind([a.shape for a in arrays]))
        check_memory(graph, every_node=True)
        return interpret(graph, arrays, state=state)

    return run


def _compare(names: tuple[str, ...], results: list[Any], others: list[Any]) -> None:
    """Exit 3, naming the results, unless both engines agree within the tolerance of the dtype."""
    rows = []
    for name, mine, other in zip(names, results, others):
        error, allowed = _distance(mine, other)
        if not error <= allowed:
            rows.append(f"{name}: largest difference {error:.3g}, allowed {allowed:.3g}")
    if rows:
        click.echo("mismatch between the compiled and the reference result", err=True)
        for row in rows[:20]:
            click.echo(f"  {row}", err=True)
        raise Mismatch


def _distance(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(largest difference, allowed difference); NaNs and infinities must stand at equal places."""
    import numpy as np

    from graphc.ir.types import C128, dtype

    kind = dtype(mine.dtype)
    if mine.shape != other.shape or not mine.size:
        return (0.0 if mine.shape == other.shape else np.inf), 0.0
    if kind.kind not in "fc":
        return float(np.max(mine != other)), 0.0
    wide = C128.numpy if kind.is_complex else np.float64
    a, b = mine.astype(wide), other.astype(wide)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return np.inf, 0.0
    scale = float(np.max(np.abs(b[~odd]), initial=1.0))
    return float(np.max(np.abs(a[~odd] - b[~odd]), initial=0.0)), _TOLERANCE[kind.name] * scale


def _report(
    names: tuple[str, ...], results: list[Any], output: Path | None, tracer: Tracer, as_json: bool
) -> None:
    if as_json:
        found = {
            "output": str(output) if output else None,
            "results": [_describe(name, r) for name, r in zip(names, results)],
        }
        print_json({**found, **as_dicts(tracer)})
        return
    rows = [(name, str(r.dtype), list(r.shape), _preview(r)) for name, r in zip(names, results)]
    print_table("results", ["result", "dtype", "shape", "values"], rows)
    if output is not None:
        click.echo(f"written to {output}")
    if tracer.rows is not None:
        print_table("devices", COLUMNS, tracer.rows)
        if tracer.blamed:
            print_table("farthest from the simulation", BLAMED, tracer.blamed)
        click.echo(f"trace written to {tracer.path}")


def _describe(name: str, result: Any) -> dict[str, Any]:
    record = {"name": name, "dtype": str(result.dtype), "shape": list(result.shape)}
    if result.size <= _SHOWN_ELEMENTS and result.dtype.kind in "biuf":
        record["values"] = result.tolist()
    return record


def _preview(result: Any) -> str:
    flat = result.reshape(-1)[:_SHOWN_ELEMENTS]
    shown = " ".join(f"{v:.6g}" if result.dtype.kind in "f" else str(v) for v in flat)
    return shown + (" ..." if result.size > _SHOWN_ELEMENTS else "")
