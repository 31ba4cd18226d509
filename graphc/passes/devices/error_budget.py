"""budget: which transfers may lose precision so that the results stay within an error budget.

The error of a result is its largest difference, relative to its largest magnitude.  With sample
data it is measured: everything at once, and if that is too much one channel at a time, the cheapest
per byte first while their errors add up (to first order they do) to no more than the budget; what
is chosen is measured again as a whole.  Without, it is bounded for all data by what `conditioning`
finds; where nothing bounds it, the transfer stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from math import inf, nan
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Program
from graphc.ir.op import Effect
from graphc.ops.control.compression import WORST, truncate16, widen16
from graphc.ops.reference.interpreter import check_arguments, interpret
from graphc.passes.devices.conditioning import weights
from graphc.passes.tuning import tuned
from graphc.record import record
from graphc.runtime.call.variable import container

TINY = 2.0**-126  # below, an f32 has fewer bits and no bound is relative
Shorten = Callable[[Program, frozenset[str], str], Program]


@record(frozen=True)
class Choice:
    """Whether a channel is shortened; the largest and mean relative error of what it carried in the
    sample (NaN if there was none), and what decided."""

    take: bool
    text: str = ""
    worst: float = nan
    mean: float = nan


def chosen_channels(
    program: Program, saved: Mapping[str, int], mode: str, config: Config, shorten: Shorten
) -> dict[str, Choice]:
    """A choice for every channel of `saved` (the bytes that shortening it saves).

    Raises FeedError for a sample that does not fit the parameters.
    """
    budget = config.error_budget
    if config.sample is not None:
        check_arguments(program.params, config.sample)
        try:
            return _Sample(program, config.sample, mode, shorten).choose(saved, budget)
        except GraphError as error:  # for example a variable that has no value yet
            note = f"the sample cannot be run ({error.message})"
    else:
        note = "no sample to measure with"
    if budget is None:
        return {channel: Choice(True) for channel in saved}
    return _bounded(weights(program), saved, WORST[mode], budget, note)


def _bounded(
    weight: Mapping[str, float], saved: Mapping[str, int], unit: float, budget: float, note: str
) -> dict[str, Choice]:
    """Channels whose errors, bounded for all data, add up to no more than the budget."""
    choices = {}
    spent = 0.0
    for channel in sorted(saved, key=lambda c: weight.get(c, inf) / saved[c]):
        cost = weight.get(channel, inf) * unit
        take = spent + cost <= budget
        spent += cost if take else 0.0
        size = "nothing bounds its" if cost == inf else f"at most {cost:.2g} of"
        text = f"{size} error in the results, {spent:.2g} of {budget:.2g} spent; {note}"
        choices[channel] = Choice(take, text)
    return choices


@record(eq=False)
class _Sample:
    """One run of the program on sample data, and what shortening changes about it."""

    program: Program
    arguments: Any
    mode: str
    shorten: Shorten
    state: dict[tuple[str, str], Any] = field(default_factory=dict)
    exact: list[Any] = field(default_factory=list)

    def choose(self, saved: Mapping[str, int], budget: float | None) -> dict[str, Choice]:
        sent: dict[str, list[Any]] = {}
        self.state = _variables(self.program)
        self.exact = self.run(self.program, sent)
        taken, text = self.within(saved, budget)
        choices = {}
        for channel in saved:
            worst, mean = self.lost(sent.get(channel, ()))
            choices[channel] = Choice(channel in taken, text.get(channel, ""), worst, mean)
        return choices

    def run(self, program: Program, sent: dict[str, list[Any]] | None = None) -> list[Any]:
        return interpret(program, self.arguments, state=dict(self.state), sent=sent)

    def lost(self, messages: Iterable[Any]) -> tuple[float, float]:
        """The largest and the mean relative error of what a channel carried."""
        errors = [_relative(x, widen16(truncate16(x, self.mode))) for x in messages]
        flat = np.concatenate([e.reshape(-1) for e in errors]) if errors else np.empty(0)
        return (float(flat.max()), float(flat.mean())) if flat.size else (0.0, 0.0)

    def error(self, channels: Iterable[str]) -> float:
        """The largest error of a result when these channels are shortened."""
        made = self.run(self.shorten(self.program, frozenset(channels), self.mode))
        return max(map(result_error, self.exact, made), default=0.0)

    def within(
        self, saved: Mapping[str, int], budget: float | None
    ) -> tuple[list[str], dict[str, str]]:
        """The channels that are taken, and a text for each that was measured alone."""
        everything = list(saved)
        total = self.error(everything)
        share = f"all together change the results by {total:.2g}"
        if budget is None or total <= budget:
            return everything, dict.fromkeys(everything, share)
        first = sorted(everything, key=lambda c: saved[c], reverse=True)[: tuned.measured_channels]
        alone = {channel: self.error([channel]) for channel in first}
        taken = _cheapest(alone, saved, budget)
        while taken and (total := self.error(taken)) > budget:
            taken = taken[: len(taken) // 2]  # the errors of these add up to more than their sum
        text = {c: f"alone it changes the results by {e:.2g}" for c, e in alone.items()}
        left = dict.fromkeys(
            everything, f"not among the {tuned.measured_channels} largest, so not measured alone"
        )
        return taken, left | text


def _cheapest(alone: Mapping[str, float], saved: Mapping[str, int], budget: float) -> list[str]:
    """The channels with the least error per byte whose errors add up to the budget."""
    taken, spent = [], 0.0
    for channel in sorted(alone, key=lambda c: alone[c] / saved[c]):
        if spent + alone[channel] <= budget:
            taken.append(channel)
            spent += alone[channel]
    return taken


def result_error(want: Any, got: Any) -> float:
    """The largest difference of two results relative to the largest magnitude of the first."""
    want, got = np.asarray(want), np.asarray(got)
    if not want.size or want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(want, got) else inf
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(wide), got.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        difference = float(np.where(same, 0.0, np.abs(a - b)).max())
    return inf if np.isnan(difference) else difference / size if size else difference


def _relative(x: Any, y: Any) -> Any:
    """Element-wise relative errors; of numbers below the normal range relative to the smallest."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    with np.errstate(invalid="ignore"):
        lost = np.abs(x - y) / np.maximum(np.abs(x), TINY)
    return np.where((x == y) | np.isnan(x), 0.0, lost)


def _variables(program: Program) -> dict[tuple[str, str], Any]:
    """The present values of the variables that a program reads."""
    found = {}
    for graph in program.graphs:
        for node in graph.nodes:
            if node.op.effect is Effect.READ:
                key = node.attrs["container"], node.attrs["name"]
                cell = container(key[0]).cells.get(key[1])
                if cell is not None and cell.ready:
                    found[key] = np.array(cell.value())
    return found
