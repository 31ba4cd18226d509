"""Every case by name: functions first, then training steps."""

from __future__ import annotations

from benchmarks import cases, training

CASES = cases.CASES | training.CASES
