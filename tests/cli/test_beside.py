"""graphc bench --beside another runtime."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.cli import main
from graphc.cli.beside import print_comparison

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
        assert re.search(r"times (faster|slower); results differ by", capsys.readouterr().out)


def test_who_is_faster_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"threads": 1, "graphc_us": 1, "beside_us": 1, "pairs": 9, "difference": 0}
    row |= {"graphc_first_ms": 1, "beside_first_ms": 1}
    print_comparison("another", [{**row, "times_faster": 1.5}, {**row, "times_faster": 0.5}])
    assert re.findall(r"[\d.]+ times \w+", capsys.readouterr().out) == [
        "1.50 times faster",
        "2.00 times slower",
    ]


def test_open_sizes_of_what_is_written_as_onnx_are_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy that the other one runs has the sizes, too: some graphs are none without."""
    pytest.importorskip("onnxruntime", reason="it is compared with it")
    compiled = gc.compile(lambda x: np.tanh(x @ W))
    compiled.save(tmp_path / "m.gir", gc.spec(("n", 4), "f32"))
    command = ["bench", str(tmp_path / "m.gir"), "--beside", "onnxruntime", "--bind", "n=3"]
    main([*command, "--seconds", "0.01", "--threads", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["rows"][0]["difference"] < 1e-5


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
