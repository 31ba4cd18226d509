"""`graphc bisect`: which stage and rewrite make a result differ, or the compiler crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from graphc.base.record import replace
from graphc.cli.commands import Mismatch
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
from graphc.cli.compile import binding_option, parse_bindings
from graphc.errors import GraphError
from graphc.limits import limit


def feed_options(command: Any) -> Any:
    """--feed, --seed and --bind."""
    command = click.option(
        "--seed", type=click.IntRange(0), help="Draw the parameters that have no feed."
    )(command)
    return click.option(
        "--feed", "feeds", multiple=True, metavar="NAME=FILE", help=".npy, .npz or a number."
    )(binding_option(command))


@click.command("bisect")
@click.argument("model", type=MODEL)
@feed_options
@click.option(
    "--against",
    "against",
    multiple=True,
    metavar="OPTION=VALUE",
    help="Compare with other options (opt=0, backend=numba ...) instead of the reference.",
)
@click.option(
    "-o", "--output", type=MODEL, metavar="TEST.py", help="Write the smallest case as a test file."
)
@click.option("--reduce/--no-reduce", default=True, help="Look for the smallest graph and input.")
@config_options
@json_option
def bisect_command(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    bindings: tuple[str, ...],
    against: tuple[str, ...],
    output: Path | None,
    reduce: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Find what makes a result of MODEL differ, or the compiler crash; exit 3 if anything does."""
    from graphc.frontend.diagnosis.bisect import culprit, wanted_with

    given = {name: value for name, value in options.items() if value not in (None, ())}
    trial = trial_of(model, feeds, seed, bindings, options)
    other = other_options(against)
    with progress("bisecting", len(trial.value)), without_prints():
        wanted = wanted_with(trial, replace(trial.config, **other)) if other else None
        found = culprit(trial, wanted)
    if found is None:
        _print({"differs": False}, "nothing differs", as_json)
        return
    record, text = _record(found), str(found)
    if reduce and not other:
        smallest, test = _reduced(trial, found, given)
        if smallest is not None:
            text += f"\n\nthe smallest graph and input that do so:\n\n{test}"
            record |= {"test": test, "nodes": len(smallest.value)}
            if output is not None:
                output.write_text(test)
    _print(record, text, as_json)
    raise Mismatch


def trial_of(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    bindings: tuple[str, ...],
    options: dict[str, Any],
) -> Any:
    """A model with its feeds, those of the seed and options. Raises GraphError for what does not
    fit."""
    from graphc.frontend.diagnosis import bisect

    config = make_config(options)
    if config.memory_limit is None:
        config = replace(config, stack_bytes=limit("stack_bytes"))
    loaded = load_graph(model, config)
    values = all_feeds(loaded, read_feeds(feeds), parse_bindings(bindings), seed)
    return bisect.trial_of(loaded, values, loaded.config)


def other_options(items: tuple[str, ...]) -> dict[str, Any]:
    """Options of Config from NAME=VALUE. Raises GraphError for one that does not exist."""
    from graphc.config import Config

    found: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if item == "reference":
            continue
        if not equals:
            raise GraphError(f"--against {item} is no option", hint="write opt=0 or reference")
        value: Any = {"true": True, "false": False}.get(text.lower(), text)
        value = int(text) if text.isdigit() else value
        found[name] = tuple(text.split(",")) if name == "devices" else value
    Config.create(**found)
    return found


def _reduced(trial: Any, found: Any, options: dict[str, Any]) -> tuple[Any, str]:
    """The smallest trial that fails like this one, and a test file of it."""
    from graphc.frontend.diagnosis.bisect import same
    from graphc.frontend.diagnosis.reduce import reduced
    from graphc.frontend.diagnosis.report import is_small, test_file

    try:
        with without_prints():
            smallest = reduced(trial, lambda candidate: same(candidate, found))
    except GraphError:  # partitioned already, or only as a whole
        return None, ""
    kept = {
        name: getattr(trial.config, name)
        for name in options
        if name in type(trial.config).__match_args__ and name != "dump"
    }
    return (smallest, test_file(smallest, found, kept)) if is_small(smallest) else (None, "")


def _record(found: Any) -> dict[str, Any]:
    record = {
        "differs": True,
        "stage": found.stage,
        "symptom": found.symptom,
        "rewrite": found.rewrite or None,
        "rewrites": found.rewrites or None,
        "reason": found.reason or None,
        "node": found.node.summary() if found.node is not None else None,
        "runs": found.runs,
    }
    if found.location is not None:
        record["file"], record["line"] = found.location
    if found.difference is not None:
        parts = ("name", "index", "value", "wanted", "ulps", "count", "size")
        record["difference"] = {name: getattr(found.difference, name) for name in parts}
    if found.error:
        record["error"] = found.error
    return record


def _print(record: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        click.echo(text)
