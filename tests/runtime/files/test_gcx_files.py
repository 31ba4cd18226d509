"""Saved images: round trip, damage, CPU checks, and what loading imports."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from edited_files import edited
from runtime_kernels import DOUBLE, FAIL_WITH, image, vector
from safetensors import safe_open

import graphc as gc
from benchmarks.damaged import X, compiled_files, model, parts, phased_files, weights_files
from graphc.base.record import replace
from graphc.cli.commands import main
from graphc.codegen.llvm.target import host
from graphc.errors import GraphError, RunError
from graphc.frontend.files.weights import Weights
from graphc.runtime.devices import device
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.files.gcx_reader import FORMAT, read_key
from graphc.runtime.files.stable_file import OpenFile
from graphc.runtime.load import load
from graphc.runtime.load.program import Image, Origin
from graphc.runtime.load.table import TableBuilder


def saved(tmp_path, **changes) -> tuple[Image, Path]:
    table = TableBuilder()
    table.call(DOUBLE, [(1, 4), (0, 0)])
    row = table.call(DOUBLE, [(2, 0), (3, 0)], units=4)
    table.end()
    target = host()
    plan = image(
        table,
        [vector("x", 4)],
        [vector("y", 4)],
        arena_bytes=64,
        constants=np.arange(8, dtype="f4").view(np.uint8),
        origins={row: Origin("%1 = add(%0, %0)", "model.py", 3)},
        reasons={3: "an index is out of range"},
        text="gir 1\n# für alle\n",
        cpu=target.cpu,
        features=device.needed_features(target.features, target.vector_bits, target.triple),
        triple=target.triple,
    )
    plan = replace(plan, **changes)
    path = tmp_path / "model.gcx"
    gcx_writer.save(plan, path)
    return plan, path


def test_round_trip(tmp_path):
    plan, path = saved(tmp_path)
    back = gcx_files.read(path)
    for field in ("name", "params", "results", "kernels", "objects", "support", "text", "cpu"):
        assert getattr(back, field) == getattr(plan, field)
    assert dict(back.origins) == plan.origins and back.reasons == plan.reasons
    np.testing.assert_array_equal(back.table, plan.table)
    np.testing.assert_array_equal(back.constants[: plan.constants.size], plan.constants)
    (y,) = gcx_files.load(path).run([np.arange(4, dtype="f4")])
    np.testing.assert_array_equal(y, [0, 2, 4, 6])
    assert gcx_files.text_of(path) == plan.text
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gcx"]


def test_constants_are_aligned_and_stay(tmp_path):
    _, path = saved(tmp_path)
    constants = gcx_files.read(path).constants
    assert constants.__array_interface__["data"][0] % 64 == 0
    assert not constants.flags.writeable


def test_constants_of_compiled_programs_are_written_where_they_lie():
    """Half of the memory may be theirs."""
    weights = np.arange(1001, dtype=np.float32)
    plan = gc.compile(lambda x: x + weights).executable(weights).image
    pieces = gcx_writer.pieces(plan, gcx_writer.no_values(plan))
    assert any(np.shares_memory(np.frombuffer(p, np.uint8), plan.constants) for p in pieces if p)


def test_the_file_is_safetensors(tmp_path):
    plan, path = saved(tmp_path)
    with safe_open(path, "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("table"), plan.table)
        assert json.loads(file.metadata()["graphc"])["format"] == FORMAT


def test_failure_names_the_node_after_loading(tmp_path):
    table = TableBuilder()
    row = table.call(FAIL_WITH, [])
    table.end()
    plan = image(
        table,
        [],
        [],
        words=[3],
        origins={row: Origin("%7 = gather(%1)", "model.py", 12)},
        reasons={3: "an index is out of range"},
    )
    gcx_writer.save(plan, tmp_path / "f.gcx")
    with pytest.raises(RunError, match=r"out of range(.|\n)*model.py:12(.|\n)*%7 = gather"):
        gcx_files.load(tmp_path / "f.gcx").run([])


def test_every_truncation_is_an_error(tmp_path):
    _, path = saved(tmp_path)
    data = path.read_bytes()
    for size in [*range(0, 200, 7), *range(200, len(data), 397), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(GraphError):
            gcx_files.read(path)


def test_no_bit_can_be_changed(tmp_path):
    """What still can be read is what was saved: constants, origins and text as well as code."""
    _, path = saved(tmp_path)
    data, wanted = path.read_bytes(), parts(gcx_files.read(path))
    random = np.random.default_rng(1)
    length = 8 + int.from_bytes(data[:8], "little")
    for position in (*random.integers(0, length, 150), *random.integers(length, len(data), 150)):
        changed = bytearray(data)
        changed[position] ^= 1 << random.integers(8)
        path.write_bytes(changed)
        with contextlib.suppress(GraphError):
            assert parts(gcx_files.read(path)) == wanted


@pytest.mark.parametrize("name", ["constants", "table", "words", "objects", "origins", "text"])
def test_every_tensor_is_what_was_saved(tmp_path, name):
    _, path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    header = int.from_bytes(data[:8], "little") + 8
    begin, end = json.loads(data[8:header])[name]["data_offsets"]
    data[header + (begin + end) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(GraphError, match="not what was saved"):
        gcx_files.read(path)
    if name == "text":
        with pytest.raises(GraphError, match="not what was saved"):
            gcx_files.text_of(path)


@pytest.mark.parametrize("kind", [compiled_files, phased_files, weights_files])
def test_damaged_files_are_refused_or_what_they_were(tmp_path, kind):
    once = kind(random.Random(7), tmp_path)
    found = Counter(once() for _ in range(400))
    assert found.keys() <= {"refused", "equal"}
    assert found["refused"] > 300


def test_what_becomes_of_a_loaded_file_changes_nothing(tmp_path):
    """It is cut off, which would end the program if it were mapped, and overwritten."""
    for change in (lambda path: os.truncate(path, 0), lambda path: overwrite(path)):
        path = model(tmp_path)
        loaded = gc.load(path)
        wanted = loaded(X)
        change(path)
        for made, want in zip(loaded(X), wanted, strict=True):
            np.testing.assert_array_equal(made, want)


def test_what_becomes_of_loaded_weights_changes_nothing(tmp_path):
    w = np.arange(600, dtype="f4").reshape(12, 50)
    for change in (lambda path: os.truncate(path, 0), lambda path: overwrite(path)):
        gc.compile(lambda x: x @ w).save(tmp_path / "m.gir", np.ones((2, 12), "f4"))
        loaded = gc.load(tmp_path / "m.gir")
        change(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(loaded(np.ones((2, 12), "f4")), np.ones((2, 12), "f4") @ w)


def overwrite(path):
    """In place, as no program of ours writes."""
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


@pytest.mark.slow
def test_a_compilation_is_the_same_file_each_time(tmp_path):
    """In processes with other hashes and empty caches; between constants there are zeros."""
    text = (
        "gir 1\ngraph @f(%0 x: f32[3]) {\n  %1 = const() {value=f32[3](1.0,2.0,3.0)} : f32[3]\n"
        "  %2 = const() {value=f64[3](1.0,2.0,4.0)} : f64[3]\n"
        "  %3 = cumsum(%1) {axis=0, reverse=false} : f32[3]\n  %4 = add(%0, %3) : f32[3]\n"
        "  return %4, %1, %2\n}\n"
    )
    (tmp_path / "m.gir").write_text(text)
    found = set()
    for number in range(3):
        command = [sys.executable, "-m", "graphc", "compile", "m.gir", "-o", f"{number}.gcx"]
        cache = str(tmp_path / f"cache{number}")
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "GRAPHC_CACHE_DIR": cache}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        found.add((tmp_path / f"{number}.gcx").read_bytes())
    assert len(found) == 1


def test_signatures(tmp_path):
    path = model(tmp_path)
    key, other, short = tmp_path / "key", tmp_path / "other", tmp_path / "short"
    key.write_bytes(b"k" * 32)
    other.write_bytes(b"o" * 32)
    short.write_bytes(b"s")
    with pytest.raises(GraphError, match="is not signed"):
        gc.load(path, require_signature=key)
    gcx_writer.save(gcx_files.read(path), path, key=read_key(key))
    for made, want in zip(gc.load(path, require_signature=key)(X), gc.load(path)(X), strict=True):
        np.testing.assert_array_equal(made, want)
    with pytest.raises(GraphError, match="not signed with this key"):
        gc.load(path, require_signature=other)
    with pytest.raises(GraphError, match="a key has at least 16"):
        gc.load(path, require_signature=short)

    def change(_entries, metadata):
        metadata["arena"] += 64

    edited(path, change)  # with another digest of itself, which anybody can write
    gcx_files.read(path)
    for read in (gc.load, lambda p, require_signature: gcx_files.text_of(p, read_key(key))):
        with pytest.raises(GraphError, match="or was changed since"):
            read(path, require_signature=key)


def test_signatures_on_the_command_line(tmp_path):
    gc.compile(lambda x: x + 1).save(tmp_path / "m.gir", X)
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "other").write_bytes(b"o" * 32)
    make = ("compile", tmp_path / "m.gir", "-o", tmp_path / "m.gcx")
    run = ("run", tmp_path / "m.gcx", "--seed", 1, "--require-signature")

    def status(*words):
        with contextlib.suppress(SystemExit):
            main([str(word) for word in words])
            return 0
        return 1

    assert status(*make) == 0
    assert status(*run, tmp_path / "key") == 1
    assert status(*make, "--sign", tmp_path / "key") == 0
    for more in ((), ("--rebuild",)):
        assert status(*run, tmp_path / "key", *more) == 0
        assert status(*run, tmp_path / "other", *more) == 1
    text = ("run", tmp_path / "m.gir", "--seed", 1, "--require-signature", tmp_path / "key")
    assert status(*text) == 1


@pytest.mark.parametrize("suffix", ["gir", "gcx", "safetensors"])
def test_a_large_file_of_nothing_is_refused_without_being_read(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"sparse.{suffix}"
    path.touch()
    os.truncate(path, 900 << 20)
    read = []
    monkeypatch.setattr(
        OpenFile, "read", lambda self, start, n: read.append(n) or np.zeros(n, "u1")
    )
    with pytest.raises(GraphError):
        Weights(path) if suffix == "safetensors" else gc.load(path)
    assert sum(read) <= 8


@pytest.mark.parametrize("shape", [[0], [3], [1 << 20]])
@pytest.mark.parametrize("field", ["params", "results"])
def test_altered_sizes_are_refused(tmp_path, field, shape):
    """Kernels count on them: the smallest damage of a shape is memory that is not theirs."""
    _, path = saved(tmp_path)

    def change(entries, metadata):
        metadata[field][0][2] = shape

    edited(path, change, signed=False)
    with pytest.raises(GraphError, match="not what was saved"):
        gcx_files.read(path)


def test_altered_constants_are_refused(tmp_path):
    _, path = saved(tmp_path)

    def change(entries, metadata):
        entries["constants"].update(shape=[0], data_offsets=[0, 0])

    edited(path, change, signed=False)
    with pytest.raises(GraphError, match="not what was saved"):
        gcx_files.read(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 99),
        ("arena", -1),
        ("arena", 1 << 60),
        ("arena", "64"),
        ("threads", 0),
        ("kernels", ["nothing"]),
        ("objects", [[0, 1 << 40, ["double"]]]),
        ("objects", [[-8, 16, ["double"]]]),
        ("params", [["x", "f33", [4]]]),
        ("params", [["x", "f32", [-4]]]),
        ("params", [["x", "f32", [1 << 62, 1 << 62]]]),
        ("results", []),
        ("registers", 1 << 40),
        ("support", None),
    ],
)
def test_bad_metadata(tmp_path, field, value):
    _, path = saved(tmp_path)

    def change(_entries, metadata) -> None:
        (metadata["codes"][0] if field == "objects" else metadata)[field] = value

    edited(path, change)
    with pytest.raises(GraphError):
        gcx_files.read(path)


@pytest.mark.parametrize("offsets", [[0, 1 << 40], [-8, 8], [0, 3], [0.0, 1.0], ["a", "b"], None])
def test_bad_tensor_offsets(tmp_path, offsets):
    _, path = saved(tmp_path)
    edited(path, lambda entries, _m: entries["table"].update({"data_offsets": offsets}))
    with pytest.raises(GraphError):
        gcx_files.read(path)


def test_another_layout_of_the_same_tensors_still_loads(tmp_path):
    plan, path = saved(tmp_path)
    edited(path, lambda entries, _m: entries["__metadata__"].update({"pad": "x"}))
    np.testing.assert_array_equal(gcx_files.read(path).table, plan.table)
    assert gcx_files.load(path).run([np.ones(4, "f4")])[0][0] == 2


def test_code_for_another_cpu(tmp_path):
    _, path = saved(tmp_path, features=("avx512f", "amx-fp99"), cpu="future")
    with pytest.raises(GraphError, match=r"amx-fp99(.|\n)*--rebuild"):
        gcx_files.load(path)
    _, path = saved(tmp_path, triple="riscv64-unknown-linux-gnu")
    with pytest.raises(GraphError, match="riscv64"):
        gcx_files.load(path)


def test_files_that_are_not_there_or_cannot_be_written(tmp_path):
    plan, _ = saved(tmp_path)
    with pytest.raises(GraphError, match="No such file"):
        gcx_files.load(tmp_path / "absent.gcx")
    with pytest.raises(GraphError, match="cannot write"):
        gcx_writer.save(plan, tmp_path / "absent" / "model.gcx")


FRESH = """
import sys
import numpy as np
from graphc.runtime.files import gcx_files
executable = gcx_files.load(sys.argv[1])
executable.run([np.ones(slot.shape, slot.dtype.replace("f32", "f4")) for slot in executable.params])
"""
FORBIDDEN = ("numba", "lark", "scipy") + (("llvmlite",) if load._direct() else ())
FORBIDDEN_PARTS = ("graphc.frontend", "graphc.passes", "graphc.codegen", "graphc.ops", "graphc.ir")


def test_a_fresh_process_runs_without_any_compiler(tmp_path):
    _, path = saved(tmp_path)
    command = [sys.executable, "-X", "importtime", "-c", FRESH, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "graphc.runtime.call.execute" in imported
    for name in imported:
        assert name.split(".")[0] not in FORBIDDEN and not name.startswith(FORBIDDEN_PARTS), name


def test_saving_is_atomic(tmp_path, monkeypatch):
    _, path = saved(tmp_path)
    before = path.read_bytes()

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(GraphError, match="No space left"):
        saved(tmp_path, text="other")
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_needed_features():
    assert "fma" in device.needed_features("", 256, "x86_64-unknown-linux-gnu")
    assert "avx512f" not in device.needed_features("", 256, "x86_64-unknown-linux-gnu")
    assert device.needed_features("+avx2,-fma,+rdrnd", 512, "x86_64-x") == ("avx2",)
    target = host()
    needed = device.needed_features(target.features, target.vector_bits, target.triple)
    device.check_host(target.triple, target.cpu, needed)
