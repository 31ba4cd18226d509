"""`graphc record` and `graphc replay`: runs of several devices, and the order of what they do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from graphc.cli.bisect import feed_options
from graphc.cli.common import (
    MODEL,
    complete_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    progress,
    read_feeds,
)

if TYPE_CHECKING:
    from graphc.runtime.observe.replay import Recording

MISMATCH = 3  # exit status


@click.command("record")
@click.argument("model", type=MODEL)
@feed_options
@click.option("-o", "--output", type=MODEL, required=True, help="The .json file to write.")
@click.option(
    "--orders",
    type=click.IntRange(1),
    help="Look through so many orders, drawn at random, for one that ends otherwise; exit 3.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="How long to look.",
)
@config_options
@json_option
def record_command(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    output: Path,
    orders: int | None,
    seconds: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL on several devices and keep the order of all they did; writes OUTPUT and its .npz.

    With --orders the run is done again in other orders, one step after the other, until one of them
    ends with other bits: that order is kept, and `graphc replay` does it again.
    """
    from graphc.runtime.observe.replay import recorded, write

    executable, arrays, given = _prepared(model, feeds, seed or 0, options)
    _, found = recorded(executable, arrays)
    tried, other = _searched(executable, arrays, orders or 0, time.monotonic() + seconds)
    kept = other or found
    write(kept, output, {"model": model.name})
    with output.with_suffix(".npz").open("wb") as file:
        np.savez(file, **given)
    report = {"output": str(output), "orders": tried, "steps": len(kept.order())}
    if as_json:
        print_json({**report, "differs": other is not None})
    else:
        same = f"{tried} orders, all with the same bits" if orders else ", ".join(found.devices)
        click.echo(same if other is None else f"order {tried} {_difference(other, found)}")
        click.echo(f"{report['steps']:,} steps: {output}; graphc replay {model} {output}")
    if other is not None:
        raise SystemExit(MISMATCH)


def _prepared(
    model: Path, feeds: tuple[str, ...], seed: int, options: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """What runs a model, its arrays, and those by name."""
    loaded = load_graph(model, make_config(options))
    given = complete_feeds(read_feeds(feeds), loaded.params, loaded.types, seed)
    with progress("compiling", loaded.node_count):
        built, arrays = loaded.prepared((), given)
    return built.executable, arrays, dict(zip(loaded.params, arrays, strict=True))


def _searched(
    executable: Any, arrays: list[Any], orders: int, until: float
) -> tuple[int, Recording | None]:
    """How many orders were tried, and the first that ends otherwise than the scheduler's own."""
    from graphc.runtime.observe.replay import explored

    first: Recording | None = None
    tried = 0
    for tried, found in enumerate(explored(executable, arrays, orders), 1):
        first = first or found
        if found.results != first.results:
            return tried, found
        if time.monotonic() > until:
            break
    return tried, None


def _difference(other: Recording, found: Recording) -> str:
    if len(other.results) != len(found.results):
        return other.results[0]
    pairs = enumerate(zip(other.results, found.results, strict=True))
    return "makes other bits of result " + ", ".join(str(k) for k, (a, b) in pairs if a != b)


@click.command("replay")
@click.argument("model", type=MODEL)
@click.argument("recording", type=MODEL)
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help="Other arguments.")
@click.option("--times", type=click.IntRange(1), default=1, show_default=True, help="How often.")
@click.option(
    "--trace", "trace_file", type=MODEL, metavar="FILE", help="Write the timeline: .json or .html."
)
@config_options
@json_option
def replay_command(
    model: Path,
    recording: Path,
    feeds: tuple[str, ...],
    times: int,
    trace_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Do a recorded run of MODEL again in the same order; exit 3 where it ends with other bits.

    MODEL and the options that decide how it is compiled are those of `graphc record`.
    """
    from graphc.runtime.observe.replay import outcome, read, timeline
    from graphc.runtime.observe.trace import write as write_trace

    found, _ = read(recording)
    kept = recording.with_suffix(".npz")
    feeds = feeds or ((str(kept),) if kept.exists() else ())
    executable, arrays, _ = _prepared(model, feeds, 0, options)
    same = sum(outcome(executable, arrays, found) == found.results for _ in range(times))
    if trace_file is not None:
        write_trace(timeline(executable, found), trace_file)
    if as_json:
        print_json({"times": times, "same": same, "results": list(found.results)})
    else:
        ends = f", which {found.results[0]}" if found.results[0].startswith("failed") else ""
        click.echo(f"{same} of {times} runs ended as the recorded one{ends}")
    if same < times:
        raise SystemExit(MISMATCH)
