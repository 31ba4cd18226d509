"""What LLVM said of a machine is kept for that machine and that LLVM, and for no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphc.codegen import cache
from graphc.codegen.llvm import probe
from graphc.codegen.llvm.target import host

PROGRAM = """
import sys
import numpy as np, graphc as gc
x = np.ones((8, 8), np.float32)
gc.compile(lambda x: gc.relu(x @ x + 1))(x)
print("llvmlite" in sys.modules)
"""
CPU = """processor	: {number}
model name	: {name}
cpu MHz		: {clock}
flags		: {flags}

"""
CHANGED = b'{"cpu": "a", "features": null, "triple": [], "compiler": ""}'


def described(path: Path, name: str = "A", clock: int = 1, flags: str = "avx2") -> str | None:
    """The key of a machine of two such processors."""
    processors = (CPU.format(number=k, name=name, clock=clock + k, flags=flags) for k in range(2))
    path.write_text("".join(processors))
    return probe.identity()


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(probe, "_CPUINFO", path)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    return path


@pytest.mark.slow
def test_a_program_whose_kernels_are_in_the_cache_loads_no_llvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    loaded = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert loaded == ["True", "False" if probe.identity() else "True"]


def test_another_cpu_has_another_key_and_another_clock_rate_has_not(cpuinfo: Path) -> None:
    first = described(cpuinfo)
    assert first
    assert described(cpuinfo, clock=9) == first
    assert described(cpuinfo, name="B") != first
    assert described(cpuinfo, flags="avx2 avx512f") != first


def test_an_emulated_cpu_has_another_key(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = described(cpuinfo)
    monkeypatch.setattr(probe, "usable_features", lambda: [1, 2])
    assert described(cpuinfo) not in (None, first)


def test_a_machine_that_does_not_describe_itself_has_no_key(cpuinfo: Path) -> None:
    assert probe.identity() is None
    cpuinfo.write_text("processor : 0\nbogomips : 1\n")
    assert probe.identity() is None


def test_the_answers_are_those_of_llvm_and_are_kept(cpuinfo: Path) -> None:
    key = described(cpuinfo)
    assert key
    asked = probe.probe.__wrapped__()
    assert (asked.cpu, asked.features, asked.triple) == (host().cpu, host().features, host().triple)
    assert key in cache.default().get([key])
    assert probe.probe.__wrapped__() == asked
    other = described(cpuinfo, name="B")
    assert other
    assert not cache.default().get([other])


@pytest.mark.parametrize("kept", [b"", b"\xff", b"3", b"{}", b'{"cpu": "a"}', CHANGED])
def test_an_entry_that_holds_anything_else_is_written_again(cpuinfo: Path, kept: bytes) -> None:
    key = described(cpuinfo)
    assert key
    cache.default().put(kept, {key: "machine"})
    asked = probe.probe.__wrapped__()
    assert asked.cpu == host().cpu
    assert json.loads(cache.default().get([key])[key].code)["features"] == asked.features
