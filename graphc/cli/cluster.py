"""`graphc launch` and `graphc top`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import click

from graphc.cli.common import json_option, print_json, print_table

COLUMNS = "client", "pid", "steps_per_second", "sent_mb_per_second", "memory_mb", "state"
LINK_COLUMNS = "client", "source", "target", "mb_per_second", "sender_waits", "taker_waits"
WAITS = "sender_waited", "taker_waited"
_AFTER_THE_SCRIPT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command("launch", context_settings=_AFTER_THE_SCRIPT)
@click.option("-n", "--workers", type=int, default=2, show_default=True, help="Worker processes.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@json_option
def launch_command(workers: int, script: str, arguments: tuple[str, ...], as_json: bool) -> None:
    """Run SCRIPT, whose gc.cluster.from_environment() has so many workers; exit as it does."""
    begin = time.monotonic()
    environment = {**os.environ, "GRAPHC_WORKERS": str(workers)}
    done = subprocess.run([sys.executable, script, *arguments], env=environment)
    if as_json:
        seconds = time.monotonic() - begin
        print_json({"script": script, "status": done.returncode, "seconds": seconds})
    sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


@click.command("top")
@click.option("--seconds", type=click.FloatRange(0.01, 3600.0), default=1.0, show_default=True)
@click.option("--times", type=int, default=0, help="How many tables; 0: until Ctrl-C.")
@json_option
def top_command(seconds: float, times: int, as_json: bool) -> None:
    """Show the workers of this user's clusters and the links between them: steps and bytes per
    second, memory, state; the share of the time that the ends of a link have waited."""
    from graphc.runtime.cluster.observe import workers_of_this_machine

    shown = 0
    before = workers_of_this_machine()
    while not times or shown < times:
        time.sleep(seconds)
        now = workers_of_this_machine()
        rows = [row(before.get(pid), found, seconds) for pid, found in now.items()]
        links = link_rows(before, now, seconds)
        if as_json:
            print_json({"workers": rows, "links": links})
        else:
            title = f"{time.strftime('%H:%M:%S')}: {len(rows)} workers"
            print_table(title, list(COLUMNS), [tuple(each.values()) for each in rows])
            named = [{**each, "source": _task(each["source"])} for each in links]
            named = [{**each, "target": _task(each["target"])} for each in named]
            print_table("links", list(LINK_COLUMNS), [tuple(each.values()) for each in named])
        before, shown = now, shown + 1


def row(before: dict[str, Any] | None, now: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a worker has done between two looks at it."""
    old = before or now
    sent = max(0, now["sent"] - old["sent"])  # those of a program that has gone are not counted
    values = (
        now["client"],
        now["pid"],
        round((now["done"] - old["done"]) / seconds, 1),
        round(sent / seconds / 1e6, 3),
        round(now["memory"] / 1e6, 1),
        "waits" if now["asked"] == now["done"] else f"in step {now['step']}",
    )
    return dict(zip(COLUMNS, values, strict=True))


def link_rows(
    before: dict[int, dict[str, Any]], now: dict[int, dict[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """What has gone through links between two looks at all workers; -1 stands for the client."""
    rows = []
    for pid, worker in now.items():
        known = before.get(pid, worker)["links"]
        old = {(link["source"], link["target"]): link for link in known}
        for link in worker["links"]:
            first = old.get((link["source"], link["target"]), link)
            grown = {name: max(0, value - first[name]) for name, value in link.items()}
            values = (
                worker["client"],
                link["source"],
                link["target"],
                round(grown["bytes"] / seconds / 1e6, 3),
                *(f"{grown[end] / seconds / 1e7:.0f} %" for end in WAITS),
            )
            rows.append(dict(zip(LINK_COLUMNS, values, strict=True)))
    return rows


def _task(number: int) -> str:
    return "client" if number < 0 else f"task:{number}"
