"""graphc bench --beside another runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.cli import main

W = np.linspace(-1, 1, 12).astype(np.float32).reshape(4, 3)


def saved(folder: Path) -> Path:
    path = folder / "m.gir"
    gc.save(path, gc.compile(lambda x: np.tanh(x @ W)).graph(gc.spec((2, 4), "f32")))
    return path


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_both_run_in_turn(runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(runtime, reason=f"it is compared with {runtime}")
    path = saved(tmp_path)
    gc.convert(path, tmp_path / "m.onnx")
    for name in ("m.gir", "m.onnx"):
        capsys.readouterr()
        command = ["bench", str(tmp_path / name), "--beside", runtime, "--seconds", "0.01"]
        main([*command, "--json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [row["threads"] for row in rows] == [1, 2]
        assert all(row["difference"] < 1e-5 and row["pairs"] >= 3 for row in rows)
        main([*command, "--threads", "1"])
        assert "times faster; results differ by" in capsys.readouterr().out


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_without_it(
    runtime: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("graphc.cli.beside.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["bench", str(saved(tmp_path)), "--beside", runtime, "--seconds", "0.01"])
    assert ended.value.code == 1
    assert f"pip install {runtime}" in capsys.readouterr().err
