"""Why a pass did what it did: one short line per decision, kept with the stage's result."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import field

from graphc.base.record import record

MOST_LINES = 10_000


@record
class Reasons:
    """The decisions of one stage: (node id, text), how many there were in all, and their sum."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    count: int = 0
    summary: str = ""


_CURRENT: ContextVar[Reasons | None] = ContextVar("reasons", default=None)


def explain(node_id: int, text: str) -> None:
    """Note a decision about a node; beyond `MOST_LINES` they are only counted."""
    reasons = _CURRENT.get()
    if reasons is None:
        return
    reasons.count += 1
    if reasons.count <= MOST_LINES:
        reasons.lines.append((node_id, text))


def summarise(text: str) -> None:
    """Say in one line what the stage has done."""
    reasons = _CURRENT.get()
    if reasons is not None:
        reasons.summary = text


def duration(seconds: float) -> str:
    """A time for people, of four digits: 8 us, 13.03 ms, 1.5 s; what rounding leaves is 0 us."""
    if abs(seconds) < 1e-12:
        return "0 us"
    if seconds >= 1000:
        return f"{seconds:,.0f} s"
    scale, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{seconds * scale:.4g} {unit}"


class collecting:
    """Decisions are noted meanwhile: `with collecting() as reasons`."""

    __slots__ = ("token",)

    def __enter__(self) -> Reasons:
        reasons = Reasons()
        self.token = _CURRENT.set(reasons)
        return reasons

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self.token)
