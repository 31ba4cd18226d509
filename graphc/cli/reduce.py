"""`graphc reduce`: the smallest graph and input that still fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from graphc.cli.bisect import feed_options, trial_of
from graphc.cli.common import (
    MODEL,
    config_options,
    json_option,
    print_json,
    seconds_option,
    without_prints,
)
from graphc.errors import GraphError


@click.command("reduce")
@click.argument("model", type=MODEL)
@feed_options
@click.option(
    "--when",
    default="differs",
    metavar="WHAT",
    help='What failing is: differs (from the reference), crashes, or "exit N of COMMAND", where '
    "{model} and {feed} stand for the files.",
)
@click.option("-o", "--output", type=MODEL, required=True, help="The .gir file to write.")
@seconds_option
@config_options
@json_option
def reduce_command(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    bindings: tuple[str, ...],
    when: str,
    output: Path,
    seconds: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Shrink MODEL and its input as long as something still fails; writes OUTPUT.gir and .npz."""
    from graphc.frontend.diagnosis.failing import test_for, write
    from graphc.frontend.diagnosis.reduce import reduced
    from graphc.frontend.files.gir_files import show

    if output.suffix != ".gir":
        raise GraphError(f"cannot write a graph to {output}", hint="name it .gir")
    trial = trial_of(model, feeds, seed, bindings, options)
    with without_prints():
        found = reduced(trial, test_for(when, trial), seconds)
    feed = output.with_suffix(".npz")
    write(found, output, feed)
    if as_json:
        counts = {"nodes": len(found.value), "nodes_before": len(trial.value)}
        print_json({"output": str(output), "feed": str(feed), **counts})
        return
    click.echo(show(found.value), nl=False)
    click.echo(f"{len(trial.value)} -> {len(found.value)} nodes: {output}, {feed}")
