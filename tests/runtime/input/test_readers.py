"""Readers: every format, orders, places that are saved, files that are damaged or not there."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import EndOfData, GraphError, RunError
from graphc.runtime.input.checksums import crc32c, masked_crc32c

SPECS = {"x": gc.spec((2,), "f32"), "n": gc.spec((), "i64")}
ROWS = 10


def rows(first: int, count: int = ROWS) -> dict[str, Any]:
    n = np.arange(first, first + count)
    return {"x": np.stack([n, -n], 1).astype("f4"), "n": n}


def number(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(tag: int, data: bytes) -> bytes:
    return number(tag << 3 | 2) + number(len(data)) + data


def example(x: Any, n: int) -> bytes:
    floats = field(2, field(1, np.asarray(x, "<f4").tobytes()))
    ints = field(3, field(1, number(n)))
    entries = field(1, field(1, b"x") + field(2, floats)) + field(
        1, field(1, b"n") + field(2, ints)
    )
    return field(1, entries)


def framed(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    checks = [struct.pack("<I", masked_crc32c(part)) for part in (head, data)]
    return head + checks[0] + data + checks[1]


def write(path: Path, first: int, count: int = ROWS) -> None:
    made = rows(first, count)
    if path.suffix == ".npz":
        np.savez(path, **made)
    elif path.suffix == ".csv":
        lines = [f"{n},{x[0]},{x[1]}" for n, x in zip(made["n"], made["x"])]
        path.write_text("\n".join(["n, x.0, x.1", *lines]) + "\n")
    elif path.suffix == ".tfrecord":
        path.write_bytes(b"".join(framed(example(x, n)) for n, x in zip(made["n"], made["x"])))
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"n": made["n"], "x": made["x"].tolist()}
        kinds = arrow.schema([("n", arrow.int64()), ("x", arrow.list_(arrow.float32()))])
        parquet.write_table(arrow.table(columns, schema=kinds), path)


def drained(reader: gc.Reader) -> list[Any]:
    step, made = gc.compile(reader.next), []
    with suppress(EndOfData):
        while True:
            made.append(step())
    return made


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".tfrecord", ".parquet"])
def test_every_format(tmp_path: Path, suffix: str) -> None:
    """Batches go over the ends of files; what does not fill one is left out."""
    for k in range(3):
        write(tmp_path / f"part-{k}{suffix}", 10 * k)
    reader = gc.Reader(tmp_path / f"part-*{suffix}", SPECS, batch=7)
    made = drained(reader)
    wanted = rows(0, 28)
    assert len(made) == 4
    np.testing.assert_array_equal(np.concatenate([b["n"] for b in made]), wanted["n"])
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in made]), wanted["x"])


def test_whole_files(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.raw").write_bytes(bytes([k] * 4))
    reader = gc.Reader(tmp_path / "*.raw", gc.spec((4,), "u8"), batch=3, format="bytes")
    np.testing.assert_array_equal(reader.next(), [[0] * 4, [1] * 4, [2] * 4])


@pytest.mark.parametrize("parts", [1, 3])
def test_epochs_are_permutations_by_the_seed(tmp_path: Path, parts: int) -> None:
    for k in range(3):
        write(tmp_path / f"{k}.npz", 10 * k)

    def order(seed: int) -> Any:
        options: Any = {"batch": 6, "epochs": 2, "shuffle": True, "seed": seed}
        found = [
            drained(gc.Reader(tmp_path / "*.npz", SPECS, part=(k, parts), **options))
            for k in range(parts)
        ]
        return [np.concatenate([b["n"] for b in batches]) for batches in found]

    first = order(1)
    for one, again in zip(first, order(1), strict=True):
        np.testing.assert_array_equal(one, again)
    every = np.concatenate(first)
    np.testing.assert_array_equal(np.sort(every), np.repeat(np.arange(30), 2))
    if parts == 1:
        assert not np.array_equal(every[:30], every[30:])
        assert not np.array_equal(every, order(2)[0])


def test_a_place_is_saved_and_restored(tmp_path: Path) -> None:
    """Another process goes on where this one was; so does this one if its variable is put back."""
    for k in range(2):
        write(tmp_path / f"{k}.npz", 10 * k)
    options: Any = {"batch": 3, "epochs": None, "shuffle": True, "seed": 4}
    reader = gc.Reader(tmp_path / "*.npz", SPECS, **options)
    step = gc.compile(reader.next)
    before = [step()["n"] for _ in range(4)]
    place = np.array(reader.place.value)
    wanted = [step()["n"] for _ in range(9)]
    other = gc.Reader(tmp_path / "*.npz", SPECS, **options)
    for restored in (other, reader):
        restored.place.assign(place)
        np.testing.assert_array_equal([restored.next()["n"] for _ in range(9)], wanted)
    reader.place.assign(np.zeros(3, np.int64))
    np.testing.assert_array_equal([step()["n"] for _ in range(4)], before)


def test_data_goes_to_the_device_that_needs_it(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", 0)
    reader = gc.Reader(tmp_path / "a.npz", SPECS, batch=10)

    @gc.compile(devices=["cpu:0", "cpu:1"])
    def step() -> Any:
        with gc.device("cpu:1"):
            return reader.next()["x"].sum(axis=0)

    np.testing.assert_array_equal(step(), [45, -45])
    stages = {name: value for name, value, *_ in step.stages()}
    sends = [n for g in stages["partition"].graphs for n in g.nodes if n.op.traits.send]
    assert [n.inputs[0].nbytes for n in sends if n.inputs] == [8]


def test_what_is_wrong_with_files_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", 0)
    data = bytearray((tmp_path / "a.tfrecord").read_bytes())
    data[40] ^= 1
    (tmp_path / "bad.tfrecord").write_bytes(data)
    (tmp_path / "cut.tfrecord").write_bytes(data[:30])
    (tmp_path / "odd.csv").write_text("n,x.0,x.1\n1,2\n")
    (tmp_path / "word.csv").write_text("n,x.0,x.1\n1,2,three\n")
    (tmp_path / "other.csv").write_text("n,y\n1,2\n")
    (tmp_path / "no.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "wide.npz", n=np.zeros(3, "i8"), x=np.zeros((3, 4), "f4"))
    np.savez(tmp_path / "float.npz", n=np.zeros(3), x=np.zeros((3, 2), "f4"))
    np.savez(tmp_path / "lengths.npz", n=np.zeros(3, "i8"), x=np.zeros((4, 2), "f4"))
    for name, problem in (
        ("bad.tfrecord", "record 0 is damaged"),
        ("cut.tfrecord", "damaged"),
        ("odd.csv", "damaged or of another format"),
        ("word.csv", "three"),
        ("other.csv", "no column 'x.0' among n, y"),
        ("no.npz", "damaged or of another format"),
        ("gone.npz", "No such file"),
        ("wide.npz", r"rows of \[4\], not of \(2,\)"),
        ("float.npz", "is of float64, not of int64"),
        ("lengths.npz", "differ in their rows"),
    ):
        reader = gc.Reader(tmp_path / name, SPECS, batch=1)
        with pytest.raises(RunError, match=problem):
            gc.compile(reader.next)()


def test_patterns_are_looked_up_where_they_are_read(tmp_path: Path) -> None:
    """A folder of many files is one pattern; one without files is an error of the call."""
    for k in range(300):
        write(tmp_path / f"with-quite-a-long-name-{k:04}.npz", k, 1)
    reader = gc.Reader(tmp_path / "with-*.npz", SPECS, batch=300)
    np.testing.assert_array_equal(gc.compile(reader.next)()["n"], np.arange(300))
    with pytest.raises(RunError, match="no file is named"):
        gc.Reader(tmp_path / "*.csv", SPECS).next()


def test_two_runs_may_wait_for_one_reader(tmp_path: Path) -> None:
    """Runs of several threads take turns, each batch once; a cancelled one does not wait for it."""
    write(tmp_path / "a.npz", 0)
    reader = gc.Reader(tmp_path / "a.npz", SPECS, batch=1)
    step, found = gc.compile(lambda: reader.next()["n"]), []

    def run() -> None:
        with suppress(EndOfData):
            while True:
                found.append(int(step()[0]))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == list(range(10))


def test_hostile_records(tmp_path: Path) -> None:
    """Random bytes in a frame that is right end in an error, not in a traceback."""
    rng = np.random.default_rng(0)
    good = example([1, 2], 3)
    for _ in range(200):
        data = bytearray(good)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(0, 256)
        (tmp_path / "r.tfrecord").write_bytes(framed(bytes(data)))
        reader = gc.Reader(tmp_path / "r.tfrecord", SPECS, batch=1)
        with suppress(RunError):
            assert reader.next()["x"].shape == (1, 2)


@pytest.mark.parametrize("size", [0, 1, 100, 8 * 1024, 8 * 1024 + 77, 100_003])
def test_checksums(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF


def test_known_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_bad_arguments(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", 0)
    for arguments, problem in (
        ({"files": [tmp_path / f"{k:0200}.npz" for k in range(30)]}, "name files by a pattern"),
        ({"files": []}, "one file or more"),
        ({"files": tmp_path / "a.txt"}, "is not known"),
        ({"batch": 0}, "batch and ahead"),
        ({"part": (2, 2)}, "k < n"),
        ({"epochs": 0}, "once or more"),
        ({"specs": {"x": 3}}, "specs of known shapes"),
    ):
        given = {"files": tmp_path / "a.npz", "specs": SPECS, **arguments}
        with pytest.raises(GraphError, match=problem):
            gc.Reader(given.pop("files"), given.pop("specs"), **given)
