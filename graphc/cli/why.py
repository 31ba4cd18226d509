"""`graphc why`: questions about a compilation, each with one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from graphc.cli.bisect import feed_options
from graphc.cli.common import (
    MODEL,
    all_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    progress,
    read_feeds,
    without_prints,
)
from graphc.cli.compile import bound_shapes, parse_bindings


@click.command("why")
@click.argument("model", type=MODEL)
@click.argument("node", required=False)
@feed_options
@click.option("--runs", type=click.IntRange(1, 100), default=9, help="How many are measured.")
@config_options
@json_option
def why_command(
    model: Path,
    node: str | None,
    feeds: tuple[str, ...],
    seed: int | None,
    runs: int,
    bindings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Say why MODEL is compiled as it is, or what became of NODE: a name, %12, a line (:9), an op.

    With --feed or --seed its kernels are measured, beside loops that do nothing but copy.
    """
    from graphc.frontend.diagnosis.why import Why, measured

    loaded = load_graph(model, make_config(options))
    binding = parse_bindings(bindings)
    times = None
    with progress("compiling", loaded.node_count):
        if feeds or seed is not None:
            values = all_feeds(loaded, read_feeds(feeds), binding, seed)
            built, arrays = loaded.prepared((), values)
            with without_prints():
                times = measured(built, arrays, runs)
        else:
            built = loaded.build(*bound_shapes(loaded, binding))
    why = Why(built.stages, loaded.config, times)
    answers = why.answers() if node is None else why.of(node)
    if as_json:
        parts = ("question", "answer", "evidence")
        print_json([{name: getattr(a, name) for name in parts} for a in answers])
        return
    click.echo("\n\n".join(map(str, answers)))
