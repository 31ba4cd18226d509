"""`graphc compile`: a saved graph becomes a .gcx file, or object code that needs no Python."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import click

from graphc.cli.common import (
    MODEL,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    progress,
)
from graphc.config import SYSTEMS
from graphc.errors import GraphError


def binding_option(command: Any) -> Any:
    """--bind N=32: values of symbolic dimensions."""
    return click.option(
        "--bind", "bindings", multiple=True, metavar="NAME=INT", help="Value of a dimension symbol."
    )(command)


def target_option(command: Any) -> Any:
    """--target cuda:sm_90: what machine the code is for."""
    names = f"cpu, cpu:<llvm cpu>, {', '.join(SYSTEMS)} or cuda:sm_90."
    return click.option("--target", metavar="NAME", help=names)(command)


def parse_bindings(bindings: tuple[str, ...]) -> dict[str, int]:
    """{"N": 32} from ("N=32",), by the names of a model's own file, too. Raises GraphError."""
    from graphc.frontend.trace.trace import identifier

    made = {}
    for item in bindings:
        name, _, value = item.rpartition("=")
        if not name or not value.isdigit() or len(value) > 15:
            raise GraphError(f"--bind {item} is not a binding", hint="write --bind N=32")
        made[identifier(name)] = int(value)
    return made


@click.command("compile")
@click.argument("model", type=MODEL)
@click.option(
    "-o", "--output", type=MODEL, required=True, help="The .gcx, .o or .wasm file to write."
)
@click.option("--sign", type=MODEL, metavar="KEY", help="Sign the file with this key file.")
@target_option
@binding_option
@config_options
@json_option
def compile_command(
    model: Path,
    output: Path,
    bindings: tuple[str, ...],
    sign: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile MODEL to a file that runs without any part of the compiler.

    OUTPUT.gcx is run by graphc.  OUTPUT.o is object code with a C entry, and its header OUTPUT.h
    lies beside it; OUTPUT.wasm is a WebAssembly module, and OUTPUT.mjs loads it in JavaScript.
    """
    kinds = {".gcx": _write_gcx, ".o": _write_standalone, ".wasm": _write_standalone}
    if output.suffix not in kinds:
        raise GraphError(
            f"cannot write a compiled graph to {output}", hint="name it .gcx, .o or .wasm"
        )
    if output.suffix == ".wasm":
        options["target"] = options.get("target") or "wasm32"
    config = make_config(options)
    is_web = config.target == "cpu:wasm32"
    if is_web != (output.suffix == ".wasm") and output.suffix != ".o":
        raise GraphError(
            f"code for {config.target.removeprefix('cpu:')} cannot be a {output.suffix} file",
            hint="wasm32 makes .wasm and .o files",
        )
    if output.suffix != ".gcx":
        from graphc.codegen.standalone.build import settings

        config = settings(config)
    loaded = load_graph(model, config)
    shapes = bound_shapes(loaded, parse_bindings(bindings))
    record = kinds[output.suffix](loaded, model, output, shapes, sign)
    if as_json:
        print_json(record)
        return
    click.echo(_summary(record))


def _write_standalone(
    loaded: Any, model: Path, output: Path, shapes: list[tuple[int, ...]], sign: Path | None
) -> dict[str, Any]:
    from graphc.codegen.standalone.files import write
    from graphc.codegen.standalone.header import identifier

    if sign is not None:
        raise GraphError("only .gcx files are signed")
    name = identifier(output.stem, "model")
    started = perf_counter()
    with progress("compiling", loaded.node_count):
        planned = loaded.planned(*shapes)
        made, files = write(planned, loaded.config, name, output, loaded.variable_values())
    return {
        "output": str(output),
        "files": [str(file) for file in files],
        "bytes": output.stat().st_size,
        "nodes": loaded.node_count,
        "steps": len(made.image.origins),
        "workspace_bytes": made.image.arena_bytes,
        "target": made.target.triple,
        "seconds": round(perf_counter() - started, 4),
    }


def _write_gcx(
    loaded: Any, model: Path, output: Path, shapes: list[tuple[int, ...]], sign: Path | None
) -> dict[str, Any]:
    from graphc.frontend.files.gir_files import embedded_text
    from graphc.runtime.files.gcx_reader import read_key

    key = read_key(sign) if sign is not None else None
    with progress("compiling", loaded.node_count):
        built = loaded.build_exactly(*shapes) if shapes else loaded.build()
    # The text of a file with bound sizes has these: it is compiled again for them alone.
    bound = (stage.value for stage in built.stages if shapes and stage.name == "bind_sizes")
    graph = loaded.graph if loaded.has_marks else next(bound, built.stages[0].value)
    text = embedded_text(model, graph, loaded.config)
    built.save(output, text, key)
    return {
        "output": str(output),
        "bytes": output.stat().st_size,
        "nodes": loaded.node_count,
        "steps": built.steps,
        "seconds": round(built.seconds, 4),
        "kernels_compiled": built.compiled,
        "kernels_cached": built.cached,
    }


def _summary(record: dict[str, Any]) -> str:
    steps = f"{record['nodes']} nodes, {record['steps']} steps"
    seconds = f"{record['seconds']:.2f} s"
    if "files" not in record:
        compiled, cached = record["kernels_compiled"], record["kernels_cached"]
        kernels = f"{compiled} kernels compiled and {cached} from the cache"
        return f"{record['output']}: {steps}, {kernels}, {seconds}"
    files = " and ".join(record["files"])
    return f"{files}: {steps}, {record['bytes']} bytes for {record['target']}, {seconds}"


def bound_shapes(loaded: Any, binding: dict[str, int]) -> list[tuple[int, ...]]:
    """Parameter shapes under a binding; empty where there is none, or nothing is symbolic.

    Raises GraphError where some symbols have a value and others do not.
    """
    from graphc.frontend.trace.spec import require_symbols, symbols_of
    from graphc.ir.types import Type, substitute

    unknown = symbols_of(loaded.types)
    require_symbols(binding, unknown)
    if not binding:
        return []
    if missing := sorted(unknown - binding.keys()):
        raise GraphError(
            f"--bind gives {', '.join(sorted(binding))} a value, and {', '.join(missing)} none",
            hint="bind all dimension symbols, or none: then one compilation serves all sizes",
        )
    kinds = [substitute(kind, binding) for kind in loaded.types]
    return [kind.dims for kind in kinds if isinstance(kind, Type)]
