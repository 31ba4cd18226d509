"""`graphc compile`: a saved graph becomes a .gcx file."""

from __future__ import annotations

from pathlib import Path
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
from graphc.errors import GraphError


def binding_option(command: Any) -> Any:
    """--bind N=32: values of symbolic dimensions."""
    return click.option(
        "--bind", "bindings", multiple=True, metavar="NAME=INT", help="Value of a dimension symbol."
    )(command)


def target_option(command: Any) -> Any:
    """--target cuda:sm_90: what machine the code is for."""
    return click.option("--target", metavar="NAME", help="cpu, cpu:<llvm cpu> or cuda:sm_90.")(
        command
    )


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
@click.option("-o", "--output", type=MODEL, required=True, help="The .gcx file to write.")
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
    """Compile MODEL.gir to OUTPUT.gcx, which runs without any part of the compiler."""
    from graphc.frontend.files.gir_files import embedded_text
    from graphc.runtime.files.gcx_reader import read_key

    if output.suffix != ".gcx":
        raise GraphError(f"cannot write a compiled graph to {output}", hint="name it .gcx")
    key = read_key(sign) if sign is not None else None
    loaded = load_graph(model, make_config(options))
    shapes = bound_shapes(loaded, parse_bindings(bindings))
    with progress("compiling", loaded.node_count):
        built = loaded.build_exactly(*shapes) if shapes else loaded.build()
    # The text of a file with bound sizes has these: it is compiled again for them alone.
    bound = (stage.value for stage in built.stages if shapes and stage.name == "bind_sizes")
    graph = loaded.graph if loaded.has_marks else next(bound, built.stages[0].value)
    text = embedded_text(model, graph, loaded.config)
    built.save(output, text, key)
    record = {
        "output": str(output),
        "bytes": output.stat().st_size,
        "nodes": loaded.node_count,
        "steps": built.steps,
        "seconds": round(built.seconds, 4),
        "kernels_compiled": built.compiled,
        "kernels_cached": built.cached,
    }
    if as_json:
        print_json(record)
        return
    click.echo(
        f"{output}: {record['nodes']} nodes, {record['steps']} steps, {built.compiled} kernels "
        f"compiled and {built.cached} from the cache, {built.seconds:.2f} s"
    )


def bound_shapes(loaded: Any, binding: dict[str, int]) -> list[tuple[int, ...]]:
    """Parameter shapes under a binding; empty where there is none, or nothing is symbolic.

    Raises GraphError where some symbols have a value and others do not.
    """
    from graphc.frontend.trace.spec import symbols_of
    from graphc.ir.types import Type, substitute

    unknown = symbols_of(loaded.types)
    for name in binding:
        if name not in unknown:
            raise GraphError(f"the graph has no dimension symbol {name!r}")
    if not binding:
        return []
    if missing := sorted(unknown - binding.keys()):
        raise GraphError(
            f"--bind gives {', '.join(sorted(binding))} a value, and {', '.join(missing)} none",
            hint="bind all dimension symbols, or none: then one compilation serves all sizes",
        )
    kinds = [substitute(kind, binding) for kind in loaded.types]
    return [kind.dims for kind in kinds if isinstance(kind, Type)]
