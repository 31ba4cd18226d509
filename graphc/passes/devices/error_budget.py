"""Which transfers may lose precision so that the results stay within an error budget.

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

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Program
from graphc.ops.control.transfer_casts import WORST, truncate16, widen16
from graphc.ops.reference.interpreter import interpret
from graphc.passes.devices.conditioning import weights
from graphc.passes.measured_error import affordable, check_sample, result_error, variables_of

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
        check_sample(program.params, config.sample)
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
        self.state = variables_of(self.program)
        self.exact = self.run(self.program, sent)
        taken, text = affordable(saved, self.error, budget)
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


def _relative(x: Any, y: Any) -> Any:
    """Element-wise relative errors; of numbers below the normal range relative to the smallest."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    with np.errstate(invalid="ignore"):
        lost = np.abs(x - y) / np.maximum(np.abs(x), TINY)
    return np.where((x == y) | np.isnan(x), 0.0, lost)
