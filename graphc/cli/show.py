"""`graphc show`: a graph, a later stage of it, or its kernels."""

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
)
from graphc.cli.compile import binding_option, bound_shapes, parse_bindings, target_option
from graphc.errors import GraphError


@click.command("show")
@click.argument("model", type=MODEL)
@click.option("--after", metavar="PASS", help="Show the graph after this pass.")
@click.option(
    "--rewrites",
    type=click.IntRange(0),
    metavar="N",
    help="With --after: only the first N rewrites of that pass.",
)
@binding_option
@click.option("--kernels", is_flag=True, help="Show the generated kernels as Python source.")
@target_option
@config_options
@json_option
def show_command(
    model: Path,
    after: str | None,
    rewrites: int | None,
    bindings: tuple[str, ...],
    kernels: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print MODEL as text."""
    if rewrites is not None and after is None:
        raise GraphError("--rewrites counts those of a pass", hint="name it: --after simplify")
    config, binding = make_config(options), parse_bindings(bindings)
    loaded = load_graph(model, config, weights=kernels or after is not None)
    if kernels:
        _show_kernels(loaded, binding, as_json)
        return
    value = loaded.bound(binding) if binding else loaded.graph
    _print_graph(value if after is None else _after(loaded, value, after, rewrites), as_json)


def _after(loaded: Any, graph: Any, name: str, rewrites: int | None) -> Any:
    from graphc.frontend.compile.build import stages_of
    from graphc.frontend.compile.open_sizes import USUAL, scope_of
    from graphc.frontend.diagnosis.bisect import after_rewrites
    from graphc.passes.pipeline import STAGES, stage_named

    name = STAGES[stage_named(name)].name
    stages: tuple[Any, ...] = ()
    if loaded.has_marks or _open_in(graph):  # passes need sizes, or what stands for them
        stages = loaded.build().stages
        graph = stages[0].value
    if rewrites is not None:
        sizes = scope_of(dict.fromkeys(sorted(_open_in(graph)), USUAL)).symbols
        return after_rewrites(graph, loaded.config, name, rewrites, loaded.stage, sizes)
    stages = stages or stages_of(graph, loaded.config, stage=loaded.stage)
    made = {s.name: s.value for s in stages}
    if name not in made:
        raise GraphError(f"the graph is the output of {loaded.stage}, which runs after {name}")
    return made[name]


def _open_in(value: Any) -> set[str]:
    """The symbols of its parameters."""
    from graphc.frontend.trace.spec import symbols_of
    from graphc.ir.verify import graphs_of

    return symbols_of(p.type for graph in graphs_of(value) for p in graph.params)


def _print_graph(value: Any, as_json: bool) -> None:
    from graphc.frontend.files.gir_files import show

    text = show(value)
    if not as_json:
        click.echo(text, nl=False)
        return
    print_json(
        {
            "name": value.name,
            "nodes": len(value),
            "params": [{"name": p.attrs["name"], "type": str(p.type)} for p in value.params],
            "results": [str(r.type) for r in value.results],
            "text": text,
        }
    )


def _show_kernels(loaded: Any, binding: dict[str, int], as_json: bool) -> None:
    from graphc.codegen.build import kernel_sources, kernel_texts

    shapes = bound_shapes(loaded, binding)
    built = loaded.build_exactly(*shapes) if shapes else loaded.build()
    if as_json:
        print_json(kernel_texts(built.kernels, loaded.config))
        return
    for name, text in kernel_sources(built.kernels).items():
        click.echo(f"# {name}\n{text.rstrip()}\n")
