"""What training on several devices takes, checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GraphError
from graphc.ir.user_lines import locate
from graphc.learn.optim import Optimiser


def refuse(problem: str, hint: str | None = None) -> GraphError:
    """An error at the line of the user."""
    return GraphError(problem, hint=hint, location=locate(3))


def team(devices: Any, who: str) -> tuple[str, ...]:
    """The names of devices: one, or a sequence of them. Raises GraphError for anything else."""
    names = (devices,) if isinstance(devices, str) else devices
    listed = isinstance(names, Sequence) and not isinstance(names, bytes)
    if not listed or not names or not all(isinstance(name, str) for name in names):
        raise refuse(
            f"{who} takes names of devices, one device or more, got {devices!r:.80}",
            'for example ["cpu:0", "cpu:1"]',
        )
    return tuple(names)


def count(number: Any, what: str, most: int = 1 << 20) -> int:
    """A number of things. Raises GraphError for none, and for more than there can be."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise refuse(f"{what}: a whole number from 1 to {most} is expected, got {number!r:.80}")
    return number


def function_of(function: Any, who: str) -> Callable[..., Any]:
    """A function. Raises GraphError for what cannot be called."""
    if not callable(function):
        raise refuse(f"{who} takes a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def optimiser_of(optimizer: Any, who: str) -> Optimiser:
    """An optimiser. Raises GraphError for anything else."""
    if not isinstance(optimizer, Optimiser):
        raise refuse(
            f"{who} takes an optimiser, got {type(optimizer).__name__}",
            "for example gc.optim.adam(1e-3)",
        )
    return optimizer


def one_of(chosen: Any, known: Sequence[str], what: str) -> None:
    """Refuse what is none of the known words. Raises GraphError."""
    if chosen not in known:
        raise refuse(f"{what} {', '.join(known)}, not {chosen!r:.80}")


def ways_of(combine: Any, known: Sequence[str]) -> tuple[str, ...]:
    """How results are combined: one way, or several. Raises GraphError for another."""
    ways = (combine,) if isinstance(combine, str) else combine
    if not isinstance(ways, Sequence) or not ways or not all(way in known for way in ways):
        raise refuse(f"results are combined by {', '.join(known)}, not by {combine!r:.80}")
    return tuple(ways)
