"""Learning rates as functions of the number of updates made so far: the first update asks for 0.

A schedule takes a Python int, an array or a traced integer and answers in f64, so that long runs
do not lose the count in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphc.frontend.trace.hooks import seen
from graphc.learn.recipe import recipe
from graphc.ops.record.families import require
from graphc.ops.record.value import functions as f

Schedule = Callable[[Any], Any]


def rate_at(rate: Any, step: Any) -> Any:
    """The learning rate of the update after `step` updates: a number, or what the schedule says."""
    return seen(rate)(step) if callable(rate) else rate


def _progress(step: Any, steps: int) -> Any:
    """step / steps, held in 0..1."""
    return f.clip(f.divide(f.astype(step, "f64"), steps), 0.0, 1.0)


@recipe
def constant(rate: float) -> Schedule:
    """The same rate for ever."""
    return lambda step: rate


@recipe
def linear(start: float, end: float, steps: int) -> Schedule:
    """From `start` to `end` in equal steps, then `end`."""
    require(steps > 0, f"a schedule over {steps} steps")
    return lambda step: f.add(f.multiply(_progress(step, steps), end - start), start)


@recipe
def cosine(start: float, steps: int, end: float = 0.0) -> Schedule:
    """From `start` to `end` along half a cosine (Loshchilov and Hutter, 2017), then `end`."""
    require(steps > 0, f"a schedule over {steps} steps")

    def schedule(step: Any) -> Any:
        wave = f.add(f.cos(f.multiply(_progress(step, steps), math.pi)), 1.0)
        return f.add(f.multiply(wave, (start - end) / 2), end)

    return schedule


@recipe
def exponential(start: float, factor: float, steps: int = 1, staircase: bool = False) -> Schedule:
    """start * factor ** (step / steps); with `staircase` the exponent is a whole number."""
    require(steps > 0 and factor > 0, f"a factor of {factor} every {steps} steps")

    def schedule(step: Any) -> Any:
        exponent = f.divide(f.astype(step, "f64"), steps)
        return f.multiply(f.power(factor, f.floor(exponent) if staircase else exponent), start)

    return schedule


@recipe
def piecewise(boundaries: Sequence[int], rates: Sequence[float]) -> Schedule:
    """rates[k] from boundaries[k - 1] on, up to before boundaries[k]: one rate more than these."""
    ends = tuple(boundaries)
    require(len(rates) == len(ends) + 1, f"{len(ends)} boundaries need {len(ends) + 1} rates")
    require(list(ends) == sorted(set(ends)), f"boundaries {list(ends)} do not increase")

    def schedule(step: Any) -> Any:
        rate = f.full((), rates[0], "f64")
        for boundary, later in zip(ends, rates[1:]):
            rate = f.where(f.greater_equal(step, boundary), later, rate)
        return rate

    return schedule


@recipe
def warm_up(rate: float | Schedule, steps: int, start: float = 0.0) -> Schedule:
    """Linear from `start` to the first value of `rate` in `steps` steps; then `rate` from there."""
    require(steps > 0, f"a warm-up of {steps} steps")

    def schedule(step: Any) -> Any:
        later = f.maximum(f.subtract(step, steps), 0)
        rising = linear(start, rate_at(rate, 0), steps)(step)
        return f.where(f.less(step, steps), rising, rate_at(rate, later))

    return schedule
