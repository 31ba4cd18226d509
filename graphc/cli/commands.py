"""The command line: `graphc compile`, `run`, `show`, `diff`, `passes`, `devices`, `bench` ...

Exit status: 0 done, 1 the input is wrong (one clear message), 2 wrong usage, 3 a mismatch.
Command modules import nothing heavy before they run, so `graphc --help` answers at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, NoReturn

import click

from graphc.base.hints import meant
from graphc.errors import GraphError

_COMMANDS = {
    "compile": "graphc.cli.compile",
    "run": "graphc.cli.run",
    "show": "graphc.cli.show",
    "view": "graphc.cli.view",
    "explore": "graphc.cli.explore",
    "diff": "graphc.cli.diff",
    "passes": "graphc.cli.system",
    "devices": "graphc.cli.system",
    "convert": "graphc.cli.convert",
    "bench": "graphc.cli.bench",
    "audit": "graphc.cli.audit",
    "cache": "graphc.cli.system",
    "launch": "graphc.cli.cluster",
    "top": "graphc.cli.cluster",
    "bisect": "graphc.cli.bisect",
    "reduce": "graphc.cli.reduce",
    "why": "graphc.cli.why",
    "profile": "graphc.cli.profile",
    "record": "graphc.cli.replay",
    "replay": "graphc.cli.replay",
}
_SUMMARIES = {
    "compile": "Compile a saved graph to a .gcx file that runs without the compiler.",
    "run": "Run a graph, a compiled graph or any dumped stage on arrays from files.",
    "show": "Print a graph, a later stage of it, or its generated kernels.",
    "view": "Write one page of a model: graph, stages, kernels, memory, timeline.",
    "explore": "Edit a model in a browser and see its stages and assembly change.",
    "diff": "Compare two graphs node by node; exit 3 if they differ.",
    "passes": "List the stages of the compiler and what holds after each.",
    "devices": "List the devices of this machine.",
    "convert": "Write a model or its weights in another format.",
    "bench": "Time the calls of a graph on random arrays.",
    "audit": "Count parameters, bytes and flops of a graph.",
    "cache": "List, fill or clear the cache of compiled kernels.",
    "launch": "Run a script with worker processes for gc.cluster.from_environment().",
    "top": "Show the worker processes of running clusters.",
    "bisect": "Find the stage and rewrite that make a result differ, or crash; exit 3.",
    "profile": "Measure kernels, and what bounds each; where compile time went.",
    "why": "Say why a model is compiled as it is, or what became of a node.",
    "reduce": "Shrink a graph and its input as long as something still fails.",
    "record": "Record a run of several devices, or one in an order that ends otherwise.",
    "replay": "Do a recorded run again, step by step; exit 3 if it ends otherwise.",
}


class _Commands(click.Group):
    """A group whose commands are imported when they run; help needs their summaries only."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            hint = meant(name, _COMMANDS) or f"commands are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command {name!r}: {hint}", context)
        found: click.Command = getattr(importlib.import_module(_COMMANDS[name]), f"{name}_command")
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="graphc", message="graphc %(version)s")
def cli() -> None:
    """graphc: a graph compiler for Python. Every stage of a model can be read, run and compared."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = cli.main(arguments, prog_name="graphc", standalone_mode=False)
    except GraphError as error:
        _fail(str(error), error, "--json" in arguments)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _leave(130)
    except MemoryError:
        _fail("not enough memory", None, "--json" in arguments)
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    else:
        sys.stdout.flush()
        if isinstance(status, int) and status:  # what a Mismatch ends as
            sys.exit(status)


def _fail(text: str, error: GraphError | None, as_json: bool) -> NoReturn:
    click.echo(f"error: {text}", err=True)
    if as_json:
        record: dict[str, Any] = {"error": error.message if error else text}
        if error is not None and error.location is not None:
            record["file"], record["line"] = error.location
        click.echo(json.dumps(record))
    _leave(1)


def _leave(status: int) -> NoReturn:
    """Exit; at once where a routine of a library goes on that was interrupted."""
    from graphc.runtime.call.library_runs import goes_on

    if goes_on():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


class Mismatch(click.exceptions.Exit):
    """Two things that should be equal are not: exit status 3."""

    def __init__(self) -> None:
        super().__init__(3)
