"""`graphc view`: one page of a model or of a dump folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli.common import (
    MODEL,
    all_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    prints_aside,
    progress,
    read_feeds,
)
from graphc.cli.compile import binding_option, bound_shapes, parse_bindings, target_option
from graphc.errors import plain

if TYPE_CHECKING:
    from graphc.viewer.page import Page


@click.command("view")
@click.argument("model", type=MODEL)
@click.option("-o", "--output", type=MODEL, help="The page to write; MODEL.html by default.")
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help="Measure runs on these.")
@click.option("--seed", type=click.IntRange(0), help="Measure runs on parameters of this seed.")
@click.option("--runs", type=click.IntRange(1, 100), default=9, help="How many are measured.")
@click.option("--sources", type=MODEL, metavar="DIR", help="Show the user's lines from here.")
@binding_option
@target_option
@config_options
@json_option
def view_command(
    model: Path,
    output: Path | None,
    feeds: tuple[str, ...],
    seed: int | None,
    runs: int,
    sources: Path | None,
    bindings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Write one page of MODEL, or of a dump folder, that needs no network: its graph, every stage
    with its reasons, kernels from the user's line to assembly, memory and timeline.
    """
    from graphc.frontend.files.read_dump import dumped_page, is_dump

    config, measured = make_config(options), (feeds, seed, runs)
    if is_dump(model):
        page = dumped_page(model, sources)
    else:
        with prints_aside(as_json):
            page = _compiled_page(model, config, parse_bindings(bindings), measured, sources)
    target = page.save(output or Path(f"{model.name.removesuffix(model.suffix) or 'page'}.html"))
    record = {"output": str(target), "bytes": target.stat().st_size}
    if as_json:
        print_json(record)
        return
    click.echo(f"{plain(str(target))}: {record['bytes']:,} bytes; a browser opens it")


def _compiled_page(
    model: Path,
    config: Any,
    bindings: dict[str, int],
    measured: tuple[tuple[str, ...], int | None, int],
    sources: Path | None,
) -> Page:
    from graphc.frontend.files.page_sources import page_of, page_of_graph, sources_in, traced_runs
    from graphc.frontend.trace.spec import symbols_of

    feeds, seed, count = measured
    loaded = load_graph(model, config)
    texts = sources_in(sources, loaded.graph) if sources is not None else None
    if not feeds and seed is None:
        shapes = bound_shapes(loaded, bindings)
        if symbols_of(loaded.types) and not shapes:
            return page_of_graph(loaded, texts)
        with progress("compiling", loaded.node_count):
            return page_of(loaded.build(*shapes), loaded.config, sources=texts)
    given = all_feeds(loaded, read_feeds(feeds), bindings, seed)
    built, arrays = loaded.prepared((), given)
    return page_of(built, loaded.config, traced_runs(built, arrays, count), texts)
