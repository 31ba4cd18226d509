"""`graphc record` and `graphc replay`: runs of several devices, and the order of what they do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    prints_aside,
    progress,
    read_feeds,
    seconds_option,
)
from graphc.cli.compile import parse_bindings
from graphc.errors import GraphError

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
@seconds_option
@config_options
@json_option
def record_command(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    output: Path,
    orders: int | None,
    seconds: float,
    bindings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL on several devices and keep the order of all they did; writes OUTPUT and its .npz.

    With --orders the run is done again in other orders, one step after the other, until one of them
    ends with other bits: that order is kept, and `graphc replay` does it again.
    """
    from graphc.formats.convert import write_npz
    from graphc.runtime.observe.replay import recorded, write

    loaded = load_graph(model, make_config(options))
    given = all_feeds(loaded, read_feeds(feeds), parse_bindings(bindings), seed or 0)
    executable, arrays = _prepared(loaded, given)
    with prints_aside(as_json):
        _, found = recorded(executable, arrays)
        tried, other = _searched(executable, arrays, orders or 0, time.monotonic() + seconds)
    kept = other or found
    write(kept, output, {"model": model.name})
    write_npz(output.with_suffix(".npz"), {f"{k}": array for k, array in enumerate(arrays)})
    report = {"output": str(output), "orders": tried, "steps": len(kept.order())}
    if as_json:
        print_json({**report, "differs": other is not None})
    else:
        same = f"{tried} orders, all with the same bits" if orders else ", ".join(found.devices)
        click.echo(same if other is None else f"order {tried} {_difference(other, found)}")
        click.echo(f"{report['steps']:,} steps: {output}; graphc replay {model} {output}")
    if other is not None:
        raise SystemExit(MISMATCH)


def _prepared(loaded: Any, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    """What runs a model, and its arrays."""
    with progress("compiling", loaded.node_count):
        built, arrays = loaded.prepared((), given)
    return built.executable, arrays


def _kept(loaded: Any, path: Path) -> dict[str, Any]:
    """The arguments that lie beside a recording, by the numbers of the parameters."""
    from graphc.formats.convert import read_npz

    arrays = read_npz(path)
    if sorted(arrays) != sorted(map(str, range(len(loaded.params)))):
        raise GraphError(f"{path.name} does not hold the arguments of {loaded.name}")
    made = {}
    for k, (name, kind) in enumerate(zip(loaded.params, loaded.types, strict=True)):
        array = arrays[f"{k}"]
        made[name] = array.view(kind.dtype.numpy) if array.dtype.kind == "V" else array
    return made


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
    from graphc.viewer.traces import write_trace

    found, _ = read(recording)
    loaded = load_graph(model, make_config(options))
    given = read_feeds(feeds) if feeds else _kept(loaded, recording.with_suffix(".npz"))
    executable, arrays = _prepared(loaded, given)
    with prints_aside(as_json):
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
