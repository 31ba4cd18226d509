"""`graphc compile` to files that need no Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.cli.commands import main

DOCUMENT = Path(__file__).parents[2] / "docs/standalone.md"
RNG = np.random.default_rng(2)
WEIGHTS, BIAS = RNG.standard_normal((32, 16)), RNG.standard_normal(16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    w, b = WEIGHTS.astype(np.float32), BIAS.astype(np.float32)
    function = gc.compile(lambda x: np.tanh(x @ w + b))
    function.save(tmp_path / "mlp.gir", gc.spec((5, 32), "f32"))
    function.save(tmp_path / "open.gir", gc.spec(("n", 32), "f32"))
    return tmp_path


def graphc(capsys: Any, *words: Any) -> tuple[int, str, str]:
    status = 0
    try:
        main([str(word) for word in words])
    except SystemExit as request:
        status = int(request.code or 0)
    streams = capsys.readouterr()
    return status, streams.out, streams.err


def test_an_object_and_its_header(folder: Path, capsys: Any) -> None:
    target = folder / "mlp.o"
    command = "compile", folder / "mlp.gir", "-o", target, "--target", "aarch64-linux", "--json"
    status, out, _ = graphc(capsys, *command)
    told = json.loads(out)
    assert status == 0 and told["target"].startswith("aarch64") and told["files"][1].endswith(".h")
    assert target.read_bytes()[:4] == b"\x7fELF" and told["bytes"] == target.stat().st_size
    again = target.read_bytes()
    assert graphc(capsys, *command)[0] == 0 and target.read_bytes() == again


def test_the_c_of_the_document(folder: Path, capsys: Any) -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    assert graphc(capsys, "compile", folder / "mlp.gir", "-o", folder / "mlp.o")[0] == 0
    found = re.search(r"```c\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    (folder / "main.c").write_text(found[1])
    command = ["cc", "-Wall", "-Wextra", "-Werror", "main.c", "mlp.o", "-lm", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run([folder / "main"], check=True)


@pytest.mark.slow
def test_the_javascript_of_the_document(folder: Path, capsys: Any) -> None:
    if shutil.which("node") is None or shutil.which("wasm-ld") is None:
        pytest.skip("node or wasm-ld is not installed")
    status, _, err = graphc(capsys, "compile", folder / "mlp.gir", "-o", folder / "model.wasm")
    assert status == 0, err
    found = re.search(r"```js\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    (folder / "main.mjs").write_text(found[1] + "console.log(result[3]);\n")
    done = subprocess.run(
        ["node", "main.mjs"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert abs(float(done.stdout) - np.tanh(BIAS[3])) < 1e-6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mlp.gir", "-o", "mlp.so"), "name it .gcx, .o or .wasm"),
        (("mlp.gir", "-o", "mlp.gcx", "--target", "wasm32"), "wasm32 makes .wasm and .o"),
        (("mlp.gir", "-o", "mlp.wasm", "--target", "cpu"), "wasm32 makes .wasm and .o"),
        (("mlp.gir", "-o", "mlp.o", "--target", "riscv64"), "target must be"),
        (("mlp.gir", "-o", "mlp.o", "--target", "cpu:vax"), "unknown CPU target"),
        (("mlp.gir", "-o", "mlp.o", "--target", "cuda:sm_90"), "for one CPU"),
        (("open.gir", "-o", "mlp.o"), "--bind"),
        (("mlp.gir", "-o", "no/such/mlp.o"), "no/such"),
    ],
)
def test_what_cannot_be_written(
    words: tuple[str, ...], told: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(folder)
    status, _, err = graphc(capsys, "compile", *words)
    assert status == 1 and told in err
    assert {path.suffix for path in folder.iterdir()} <= {".gir", ".safetensors"}


def test_files_appear_together(folder: Path, capsys: Any) -> None:
    (folder / "mlp.o").mkdir()
    status, _, err = graphc(capsys, "compile", folder / "mlp.gir", "-o", folder / "mlp.o")
    assert status == 1 and "cannot write" in err and not (folder / "mlp.h").exists()


def test_sizes_that_the_data_decides_are_named(folder: Path, capsys: Any) -> None:
    gc.compile(lambda x: x[x > 0]).save(folder / "count.gir", gc.spec((5,), "f32"))
    status, _, err = graphc(capsys, "compile", folder / "count.gir", "-o", folder / "count.o")
    assert status == 1 and "sizes that only its data knows" in err and "test_standalone" in err


def test_bound_sizes(folder: Path, capsys: Any) -> None:
    output = folder / "b.o"
    assert graphc(capsys, "compile", folder / "open.gir", "-o", output, "--bind", "n=3")[0] == 0
    assert "3 x 32" in (folder / "b.h").read_text()


def test_without_a_linker(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(folder))
    status, _, err = graphc(capsys, "compile", folder / "mlp.gir", "-o", folder / "mlp.wasm")
    assert status == 1 and "install the package lld" in err
    assert not (folder / "mlp.mjs").exists()
