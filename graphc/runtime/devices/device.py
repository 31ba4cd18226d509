"""What this machine has: threads to run on, and instructions (without asking LLVM)."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from graphc.errors import GraphError

MOST_THREADS = 256

_V2 = ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS = {128: _V2, 256: _V3, 512: _V4}

# LLVM's names where Linux has another one; other names agree but for "." and "-", which Linux
# writes as "_".
_LINUX_NAMES = {
    "sse3": "pni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect",
    "neon": "asimd",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "lse": "atomics",
}

# The features that decide which instructions kernels hold; others (timers, virtual memory) do not.
_RELEVANT_TEXT = (
    "avx512vbmi avx512vbmi2 avx512ifma avx512vnni avx512bf16 avx512bitalg avx512vpopcntdq "
    "avx512fp16 avx512vp2intersect avxvnni gfni vaes vpclmulqdq adx "
    "amx-tile amx-int8 amx-bf16 neon dotprod fullfp16 bf16 i8mm sve sve2 lse"
)
_RELEVANT = frozenset(_V4) | frozenset(_RELEVANT_TEXT.split())


def default_threads() -> int:
    """GRAPHC_THREADS, or where that is 0 or unset the number of CPUs this process may use."""
    text = os.environ.get("GRAPHC_THREADS", "")
    if text and not (text.isdecimal() and int(text) <= MOST_THREADS):
        raise GraphError(f"GRAPHC_THREADS is {text!r}; a number from 0 (all) to 256 is expected")
    return int(text or 0) or min(MOST_THREADS, processors())


def processors() -> int:
    """The number of CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def needed_features(features: str, vector_bits: int, triple: str) -> tuple[str, ...]:
    """What code for a target needs, sorted.

    The `+names` of its LLVM feature string, or without one the x86-64 level with such vectors.
    """
    named = {word[1:] for word in features.split(",") if word.startswith("+")}
    if not named and triple.startswith("x86"):
        named = set(_LEVELS[vector_bits])
    return tuple(sorted(named & _RELEVANT))


@cache
def host_features() -> frozenset[str] | None:
    """LLVM's names of the relevant features this CPU has; None where that cannot be told."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    if line is None:
        return None
    present = set(line[1].split())
    return frozenset(name for name in _RELEVANT if _linux_name(name) in present)


def _linux_name(name: str) -> str:
    return _LINUX_NAMES.get(name, name.replace(".", "_").replace("-", "_"))


def check_host(triple: str, cpu: str, features: tuple[str, ...]) -> None:
    """Raise GraphError unless this machine can execute a file's code, which is for that CPU."""
    reason = missing_here(triple, cpu, features)
    if reason:
        hint = "--rebuild compiles the graph that the file holds for this machine"
        raise GraphError(reason, hint=hint)


def missing_here(triple: str, cpu: str, features: tuple[str, ...]) -> str:
    """Why this machine cannot execute code made for that CPU; "" where it can."""
    ours, theirs = machine(), _architecture(triple.split("-")[0])
    if triple and ours != theirs:
        return f"the code is for {theirs}, this machine is {ours}"
    present = host_features()
    missing = [] if present is None else [name for name in features if name not in present]
    if not missing:
        return ""
    return f"the code was made for {cpu}; this CPU lacks {', '.join(missing)}"


@cache
def machine() -> str:
    """The architecture of this machine, as the first word of an LLVM triple has it."""
    if hasattr(os, "uname"):  # half of the standard library stands behind `platform`
        return _architecture(os.uname().machine)
    import platform

    return _architecture(platform.machine())


def _architecture(name: str) -> str:
    lower = name.lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(lower, lower)
