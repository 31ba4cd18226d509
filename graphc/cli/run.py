"""`graphc run`: a graph, a compiled graph or a dumped stage on arrays from files."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from graphc.base.record import replace
from graphc.cli.common import (
    MODEL,
    all_feeds,
    complete_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    print_table,
    prints_aside,
    progress,
    read_feeds,
    write_results,
)
from graphc.cli.compile import binding_option, parse_bindings
from graphc.cli.trace import BLAMED, COLUMNS, LINKS, Tracer, as_dicts
from graphc.errors import GraphError, plain
from graphc.limits import limit

_SHOWN_ELEMENTS = 6


@click.command("run")
@click.argument("model", type=MODEL)
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help=".npy, .npz or a number.")
@click.option("-o", "--output", type=MODEL, help="Write the results to this .npz file.")
@click.option("--engine", type=click.Choice(["compiled", "reference"]), default="compiled")
@click.option(
    "--seed", type=click.IntRange(0), help="Draw the parameters that have no feed from this seed."
)
@binding_option
@click.option("--check", is_flag=True, help="Compare compiled and reference results; exit 3.")
@click.option("--rebuild", is_flag=True, help="Compile the graph inside a .gcx file again.")
@click.option(
    "--trace",
    "trace_file",
    type=MODEL,
    metavar="FILE",
    help="Write what ran when: .json for chrome://tracing or Perfetto, .html for a page.",
)
@click.option(
    "--summaries",
    type=MODEL,
    metavar="PATH",
    help="Write what gc.summary records: a .jsonl or .csv file, or a folder for TensorBoard.",
)
@click.option(
    "--require-signature",
    type=MODEL,
    metavar="KEY",
    help="Run a .gcx file only if it was signed with this key file.",
)
@config_options
@json_option
def run_command(
    model: Path,
    feeds: tuple[str, ...],
    output: Path | None,
    engine: str,
    seed: int | None,
    bindings: tuple[str, ...],
    check: bool,
    rebuild: bool,
    trace_file: Path | None,
    summaries: Path | None,
    require_signature: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL (.gir, .gcx or any file of a dump) and print or write its results."""
    if trace_file is not None and engine == "reference":
        raise GraphError("--trace shows compiled runs", hint="leave --engine reference out")
    if summaries is not None and (check or model.suffix == ".gcx"):
        raise GraphError(
            "--summaries are of one run of a graph", hint="leave --check out, and give a .gir file"
        )
    given = read_feeds(feeds)
    compiled = model.suffix == ".gcx" and not rebuild
    if compiled and engine == "compiled" and not check:
        tracer = Tracer(trace_file)
        told = {**options, "bind": bindings}
        names, results = _run_compiled(model, given, seed, tracer, told, require_signature)
        lost = None
    else:
        from graphc.runtime.files.gcx_reader import read_key

        config = make_config(options)
        if config.memory_limit is None:
            config = replace(config, stack_bytes=limit("stack_bytes"))
        tracer = Tracer(trace_file, config)
        key = read_key(require_signature) if require_signature is not None else None
        loaded = load_graph(model, config, key=key)
        with _recorded(summaries), prints_aside(as_json):
            drawn = all_feeds(loaded, given, parse_bindings(bindings), seed)
            names, results, lost = _run_graph(loaded, drawn, (engine, check), tracer)
    if output is not None:
        write_results(output, names, results)
    _report(names, results, output, tracer, lost, as_json)
    if check and not as_json:
        click.echo("the interpreter has the same results, but for rounding")


def _recorded(summaries: Path | None) -> AbstractContextManager[object]:
    """Within it summaries are written to a file or folder, if there is one."""
    if summaries is None:
        return nullcontext()
    from graphc.frontend.summaries.recorder import to

    return to(summaries)


def _run_compiled(
    model: Path,
    feeds: dict[str, Any],
    seed: int | None,
    tracer: Tracer,
    options: dict[str, Any],
    signed: Path | None,
) -> tuple[tuple[str, ...], list[Any]]:
    """A .gcx file, without importing the compiler."""
    from graphc.runtime.call.phased_executable import PhasedExecutable
    from graphc.runtime.files.gcx_function import load

    for name, value in options.items():
        if value not in (None, ()) and name != "threads":
            option = name.replace("_", "-")
            raise GraphError(
                f"--{option} has no effect on {model.name}, which is compiled already",
                hint="--rebuild compiles the graph that the file holds",
            )

    loaded = load(
        model,
        threads=options.get("threads"),
        require_signature=signed,
        stack_bytes=limit("stack_bytes"),
    )
    if seed is not None:
        from graphc.ir.types import DTYPES, tensor

        slots = loaded.executable.params
        kinds = [tensor(DTYPES[slot.dtype], slot.shape) for slot in slots]
        types = dict(zip(loaded.params, kinds))
        feeds = complete_feeds(feeds, loaded.params, types, seed)
    arrays = loaded.arrays(loaded.arrange((), feeds))
    executable = loaded.executable.of(arrays)
    if isinstance(executable, PhasedExecutable):
        if tracer.path is not None:
            raise GraphError("--trace shows one program, and this one runs in phases")
        return loaded.result_names, executable.run(arrays)
    return loaded.result_names, tracer.run(executable, arrays)


def _run_graph(
    loaded: Any, feeds: dict[str, Any], engines: tuple[str, bool], tracer: Tracer
) -> tuple[tuple[str, ...], list[Any], list[tuple[Any, ...]] | None]:
    """Names, results and, with a check, what lost precision changes about them."""
    from graphc.cli.check import reference

    engine, check = engines
    if check and loaded.config.precision == "tf32":
        raise GraphError(
            "--check compares with an interpreter, which multiplies in full",
            hint="gc.precision_report says what --precision tf32 changes",
        )
    values = loaded.arrange((), feeds)
    other, config = reference(loaded), loaded.config
    loses = config.shortens or config.precision != "f32"
    if engine == "compiled" and not (check or loses or tracer.path):
        with progress("compiling", loaded.node_count):
            return loaded.result_names, loaded.run(values), None
    built = None
    if engine == "compiled" or check or loses:
        with progress("compiling", loaded.node_count):
            built, arrays = loaded.prepared(tuple(values), {})
    if engine == "reference" and not check:
        return loaded.result_names, other.run(built, values), None
    assert built is not None
    if not check:
        return loaded.result_names, tracer.run(built.executable, arrays, built), None
    wanted = other.run(built, values)
    other.record(built)
    compiled = tracer.run(built.executable, arrays, built)
    other.compare(built, values, compiled, wanted)
    return loaded.result_names, compiled if engine == "compiled" else wanted, other.lost


def _report(
    names: tuple[str, ...],
    results: list[Any],
    output: Path | None,
    tracer: Tracer,
    lost: list[tuple[Any, ...]] | None,
    as_json: bool,
) -> None:
    if as_json:
        found = {
            "output": str(output) if output else None,
            "results": [_describe(name, r) for name, r in zip(names, results)],
        }
        if lost is not None:
            from graphc.cli.check import lost_dicts

            found["compression"] = lost_dicts(lost)
        print_json({**found, **as_dicts(tracer)})
        return
    shown = [(name, as_shown(result)) for name, result in zip(names, results)]
    rows = [(name, _kind(r), list(r.shape), _preview(r)) for name, r in shown]
    print_table("results", ["result", "dtype", "shape", "values"], rows)
    if output is not None:
        click.echo(f"written to {output}")
    if lost is not None:
        from graphc.cli.check import COLUMNS as LOST
        from graphc.cli.check import lost_rows

        print_table("lost precision", LOST, lost_rows(lost))
    if tracer.rows is not None:
        print_table("devices", COLUMNS, tracer.rows)
        if tracer.links:
            print_table("links", LINKS, tracer.links)
        if tracer.blamed:
            print_table("farthest from the simulation", BLAMED, tracer.blamed)
        click.echo(f"trace written to {tracer.path}")
        if tracer.kept:
            count, path = tracer.kept
            click.echo(f'measured costs of {count} kernels and ops, for costs="measured": {path}')


def _describe(name: str, result: Any) -> dict[str, Any]:
    result = as_shown(result)
    record = {"name": name, "dtype": _kind(result), "shape": list(result.shape)}
    if result.size <= _SHOWN_ELEMENTS and (result.dtype.kind in "biuf" or _kind(result) == "str"):
        record["values"] = result.tolist()
    return record


def as_shown(result: Any) -> Any:
    """A result as an array: sequences and dictionaries, which some models give, one per place."""
    import numpy as np

    if isinstance(result, np.ndarray):
        return result
    items = result if isinstance(result, list) else [result]
    made = np.empty(len(items), object)
    made[:] = items
    return made


def _kind(result: Any) -> str:
    """Its dtype; of Python's objects what they are."""
    if result.dtype != object:
        return str(result.dtype)
    return type(result.flat[0]).__name__ if result.size else "object"


def _preview(result: Any) -> str:
    shown = " ".join(map(_spelled, result.reshape(-1)[:_SHOWN_ELEMENTS].tolist()))
    return shown + (" ..." if result.size > _SHOWN_ELEMENTS else "")


def _spelled(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return plain(repr(value)) if isinstance(value, str | dict) else str(value)
