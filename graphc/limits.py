"""Every budget of graphc in one table: what a file or a model may ask for before it is refused.

What takes linear time needs none.  Each limit has a name, which its `LimitError` gives, and may be
changed for a process: `GRAPHC_LIMITS="region_depth=80,kernels=9000"`, `--limit NAME=VALUE` on the
command line, or `set_limit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from graphc.errors import GraphError, LimitError

DEFAULTS = {
    # graph text: what is read at once, and what of it is not in the form that graphc prints
    "text_bytes": 48 << 20,
    "loose_tokens": 200_000,
    # a graph in a file: 1 kB or so for each of them (a traced one may have any number)
    "text_lines": 250_000,
    "parameters": 100_000,
    "results": 100_000,
    "inline_elements": 1 << 20,
    "region_depth": 50,
    # models in other formats: the file, nodes copied out of loops and functions, and elements of a
    # value that is computed while tracing because a size may come of it
    "model_bytes": 2 << 30,
    "imported_nodes": 10_000,
    "folded_elements": 1 << 16,
    # a dimension is a polynomial over symbols: terms, and symbols multiplied in one term
    "dimension_terms": 64,
    "dimension_factors": 64,
    # nodes that the gradient pass may make in place of one: nested gradients grow exponentially
    "gradient_growth": 100,
    # nodes of a pipeline's region times its chunks, each of which becomes a few nodes
    "pipelined_nodes": 250_000,
    # kernels that one compilation makes: each costs about 10 ms
    "kernels": 2_000,
    # scratch memory of a kernel on each thread, beside 16 times its operands and results
    "scratch_bytes": 64 << 20,
    # memory that the stacks of loops may take in `graphc run`, where no --memory-limit is given
    "stack_bytes": 256 << 20,
}
MEANING = {
    "text_bytes": "bytes of graph text",
    "loose_tokens": "tokens of text that is not spaced as graphc prints it",
    "text_lines": "lines of graph text, a node each",
    "parameters": "parameters of one graph",
    "results": "results of one graph",
    "inline_elements": "elements of a literal in the text",
    "region_depth": "regions in one another",
    "model_bytes": "bytes of a model's file",
    "imported_nodes": "nodes of a model with what it copies out of loops and functions",
    "folded_elements": "elements of a value that is computed while tracing",
    "dimension_terms": "terms of a dimension",
    "dimension_factors": "symbols multiplied in a dimension",
    "gradient_growth": "nodes made by gradients for each node of the graph",
    "pipelined_nodes": "nodes of all chunks of a pipeline together",
    "kernels": "different kernels of one compilation",
    "scratch_bytes": "bytes of scratch memory beside 16 times the operands and results of a kernel",
    "stack_bytes": "bytes of the stacks of loops in `graphc run`",
}
_chosen: dict[str, int] = {}


def limit(name: str) -> int:
    """The value of a limit."""
    if not _chosen:
        _chosen.update(DEFAULTS)
        set_limits(filter(None, os.environ.get("GRAPHC_LIMITS", "").split(",")))
    return _chosen[name]


def set_limits(settings: Iterable[str]) -> None:
    """Change limits, each given as "name=value". Raises GraphError."""
    for setting in settings:
        name, _, value = setting.partition("=")
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise GraphError(f"limit {setting!r} is not understood", hint="write region_depth=80")
        set_limit(name.strip(), int(value))


def set_limit(name: str, value: int) -> None:
    """Change one limit for this process. Raises GraphError for a name that there is not."""
    if name not in DEFAULTS:
        raise GraphError(f"there is no limit {name!r}", hint=f"limits are {', '.join(DEFAULTS)}")
    limit(name)
    _chosen[name] = value


def check_within(name: str, found: int, what: str = "") -> None:
    """Raise LimitError if something takes more than the limit of this name."""
    if found > limit(name):
        raise exceeded(name, what or f"there are {found}")


def exceeded(name: str, what: str) -> LimitError:
    """The error of a limit: what it counts, how to raise it."""
    return LimitError(
        f"{what}: the limit is {limit(name)} {MEANING[name]}",
        hint=f"raise it with --limit {name}=N or GRAPHC_LIMITS={name}=N",
    )
