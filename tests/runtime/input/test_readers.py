"""Readers: every format, orders, places that are saved, files that are damaged or not there."""

from __future__ import annotations

import re
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensor_bundle import message, varint

import graphc as gc
from graphc.errors import EndOfData, GraphError, RunError
from graphc.runtime.input.checksums import crc32c, masked_crc32c

SPECS = {"x": gc.spec((2,), "f32"), "n": gc.spec((), "i64")}
ROWS = 10


def rows(first: int, count: int = ROWS) -> dict[str, Any]:
    n = np.arange(first, first + count)
    return {"x": np.stack([n, -n], 1).astype("f4"), "n": n}


def example(x: Any, n: int) -> bytes:
    floats = message(2, message(1, np.asarray(x, "<f4").tobytes()))
    ints = message(3, message(1, varint(n)))
    entries = message(1, message(1, b"x") + message(2, floats)) + message(
        1, message(1, b"n") + message(2, ints)
    )
    return message(1, entries)


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
    np.savez(tmp_path / "less.npz", n=np.zeros(3, "i8"), y=np.zeros(3))
    np.savez(tmp_path / "scalar.npz", n=np.int64(1), x=np.zeros((1, 2), "f4"))
    np.savez(tmp_path / "object.npz", n=np.array([None]), x=np.zeros((1, 2), "f4"))
    np.savez(tmp_path / "large.npz", n=np.zeros(2, "i8"), x=np.array([[1, 2], [1e300, 0]]))
    np.save(tmp_path / "single.npy", np.zeros(3))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "null.csv").write_bytes(b"n,x.0,x.1\n1,\x00,3\n")
    (tmp_path / "latin.csv").write_bytes(b"n,x.0,x.1\n1,\xff,3\n")
    (tmp_path / "long.tfrecord").write_bytes(framed(example([1, 2], 1)) + framed(example([1], 2)))
    (tmp_path / "none.tfrecord").write_bytes(framed(message(1, b"")))
    for name, problem in (
        ("bad.tfrecord", "record 0 is damaged"),
        ("cut.tfrecord", "damaged"),
        ("long.tfrecord", r"example 1: 'x' has 1 numbers, not those of \[2\]"),
        ("none.tfrecord", "example 0: there is no feature 'x'"),
        ("odd.csv", "line 2 has 2 cells, and the header 3"),
        ("word.csv", "line 2, column 'x': 'three' is no float32"),
        ("other.csv", "(?s)no column 'x.0'.*it has n, y"),
        ("empty.csv", "(?s)no column 'x.0'.*it has none"),
        ("null.csv", r"line 2, column 'x': '.*' is no float32"),
        ("latin.csv", "damaged or of another format"),
        ("no.npz", "damaged or of another format: it is no archive"),
        ("single.npz", "damaged or of another format: it is no archive"),
        ("less.npz", "(?s)no array 'x'.*it has n, y"),
        ("scalar.npz", "'n' is a single number"),
        ("object.npz", "'n' holds objects of Python"),
        ("large.npz", r"'x' is 1e\+300 at \[1, 0\], which float32 cannot hold"),
        ("gone.npz", "No such file"),
        ("wide.npz", r"rows of \[4\], not of \[2\]"),
        ("float.npz", "is of float64, not of int64"),
        ("lengths.npz", "differ in their rows"),
    ):
        reader = gc.Reader(tmp_path / name, SPECS, batch=1)
        with pytest.raises(RunError, match=problem) as found:
            gc.compile(reader.next)()
        assert name in str(found.value)
        assert ("damaged" in str(found.value)) == ("damaged" in problem)
    (tmp_path / "empty.raw").write_bytes(b"")
    with pytest.raises(RunError, match=r"empty\.raw: it has 0 bytes, and a row 16"):
        gc.Reader(tmp_path / "empty.raw", gc.spec((4,), "f32"), format="bytes").next()


@pytest.mark.parametrize("store", [np.savez, np.savez_compressed])
def test_archives_that_are_damaged(tmp_path: Path, store: Any) -> None:
    """Cut off anywhere, or with bytes that are others: what is wrong has the name of the file."""
    rng = np.random.default_rng(0)
    store(tmp_path / "a.npz", n=rng.integers(0, 9, 40), x=rng.random((40, 2)))
    good = (tmp_path / "a.npz").read_bytes()
    changed = bytearray(good)
    changed[len(good) // 4] ^= 255
    hostile = [good[:k] for k in rng.integers(0, len(good), 12)]
    for _ in range(60):
        hostile.append(bytearray(good))
        hostile[-1][rng.integers(0, len(good))] ^= rng.integers(1, 256)
    for k, data in enumerate([bytes(changed), *hostile]):
        (tmp_path / f"{k}.npz").write_bytes(data)
        reader = gc.Reader(tmp_path / f"{k}.npz", SPECS, batch=1)
        problem = None
        try:
            assert reader.next()["x"].shape == (1, 2)
        except RunError as error:
            problem = str(error)
        assert k if problem is None else problem.startswith(str(tmp_path / f"{k}.npz"))


def test_numbers_keep_their_kind(tmp_path: Path) -> None:
    """Of every dtype for every other: taken with its value, or refused."""
    kinds = ["bool", "i8", "u8", "i32", "i64", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"]
    values = (0, 1, 200, -1, 70000, 2**40, 0.5, 1e300, 1j)
    for kind in kinds:
        spec = gc.spec((), kind)
        wanted = np.dtype(spec.dtype.numpy)
        for value in values:
            given = np.array([value])
            np.savez(tmp_path / "a.npz", x=given)
            queue = gc.Queue(spec)
            reader = gc.Reader(tmp_path / "a.npz", {"x": spec}, batch=1)
            read = item = None
            with suppress(RunError):
                read = np.asarray(reader.next()["x"])[0]
            with suppress(GraphError):
                queue.enqueue(value)
                item = np.asarray(queue.dequeue())
            assert (read is None) == (item is None), (kind, value)
            if read is not None:
                assert read == item == given.astype(wanted)[0]
                assert np.isclose(complex(read), value, rtol=0.01)


@pytest.mark.parametrize("kind", ["bool", "i8", "f16", "bf16", "c64"])
def test_cells_of_every_kind(tmp_path: Path, kind: str) -> None:
    """Bools are words or digits; numbers that do not fit are refused with their line."""
    good = ["true", "0"] if kind == "bool" else ["1", " 2"]
    for word in ("300000", "yes", "", "1.5", "1+2j"):
        (tmp_path / "a.csv").write_text("\n".join(["x", *good, f'"{word}"']))
        reader = gc.Reader(tmp_path / "a.csv", {"x": gc.spec((), kind)}, batch=2)
        fits = {"f16": ["1.5"], "bf16": ["1.5", "300000"], "c64": ["1.5", "300000", "1+2j"]}
        if word in fits.get(kind, ()):
            assert np.asarray(reader.next()["x"])[1] == 2
        else:
            with pytest.raises(RunError, match=f"a.csv: line 4, column 'x': '{re.escape(word)}'"):
                reader.next()


def test_columns_of_parquet_that_do_not_fit(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    pair = arrow.list_(arrow.float32(), 2)
    for values, kind, problem in (
        ([[1.0, 2.0], [3.0, 4.0]], pair, None),
        ([[1, 2], [3, 4]], arrow.large_list(arrow.int8()), None),
        ([[1.0], [2.0, 3.0, 4.0]], arrow.list_(arrow.float32()), "rows of 1 and of 3"),
        ([[1.0, None], [3.0, 4.0]], arrow.list_(arrow.float32()), "1 empty places"),
        ([None, [3.0, 4.0]], arrow.list_(arrow.float32()), "1 empty places"),
        ([1.0, 2.0], arrow.float32(), r"rows of \[\], not of \[2\]"),
        (["a", "b"], arrow.string(), "is of object"),
        ([[1e300, 0.0], [0.0, 0.0]], arrow.list_(arrow.float64()), "cannot hold"),
        ([], arrow.list_(arrow.float32()), "no more data"),
    ):
        made = arrow.table({"x": arrow.array(values, kind)})
        parquet.write_table(made, tmp_path / "a.parquet")
        reader = gc.Reader(tmp_path / "a.parquet", {"x": gc.spec((2,), "f32")}, batch=2)
        if problem is None:
            np.testing.assert_array_equal(reader.next()["x"], [[1, 2], [3, 4]])
        else:
            with pytest.raises((RunError, EndOfData), match=problem):
                reader.next()
    for data in (b"", b"PAR1", (tmp_path / "a.parquet").read_bytes()[:40]):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(RunError, match=r"a\.parquet is damaged"):
            gc.Reader(tmp_path / "a.parquet", {"x": gc.spec((2,), "f32")}, batch=2).next()


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
        thread.join(300)
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


# ------------------------------------------------------------------------------------------ images


def test_pictures_and_the_numbers_of_their_folders(tmp_path: Path) -> None:
    """Each file is one row; parts are files, and a shuffled epoch has each of them once."""
    images = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3)).astype("u1")
    for number, each in enumerate(pixels):
        folder = tmp_path / f"class{number % 2}"
        folder.mkdir(exist_ok=True)
        images.fromarray(each).save(folder / f"{number}.png")
    specs = {"x": gc.spec((4, 5, 3), "f32"), "label": gc.spec((), "i32")}
    pattern = str(tmp_path / "*" / "*.png")
    order = [0, 2, 4, 1, 3, 5]
    found = gc.Reader(pattern, specs, batch=6).next()
    np.testing.assert_array_equal(found["x"], pixels[order])
    np.testing.assert_array_equal(found["label"], [0, 0, 0, 1, 1, 1])
    for part in range(2):
        mine = gc.Reader(pattern, specs, batch=3, part=(part, 2)).next()
        np.testing.assert_array_equal(mine["x"], pixels[order[part::2]])
    mixed = gc.Reader(pattern, specs, batch=6, shuffle=True, seed=1).next()
    assert sorted(mixed["x"].sum(axis=(1, 2, 3))) == sorted(pixels.astype("f4").sum(axis=(1, 2, 3)))
    grey = gc.Reader(pattern, {"x": gc.spec((4, 5), "u8")}, batch=6).next()["x"]
    wanted = [np.asarray(images.fromarray(each).convert("L")) for each in pixels[order]]
    np.testing.assert_array_equal(grey, wanted)


def test_files_that_are_no_pictures_are_named(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    name = tmp_path / "a.png"
    images.fromarray(np.zeros((4, 5), "u1")).save(name)
    whole = name.read_bytes()
    images.fromarray(np.zeros((4, 5), "u2")).save(tmp_path / "wide.png")
    images.fromarray(np.zeros((4, 5), "u1")).save(tmp_path / "script.png", "EPS")
    for file, shape, problem in (
        ("a.png", (5, 4), "it is 4x5, not 5x4"),
        ("a.png", (4, 5, 2), "no picture is"),
        ("a.png", (2, 2, 4, 5), "no picture is"),
        ("wide.png", (4, 5), "more than 8 bits"),
        ("script.png", (4, 5), "cannot identify"),  # a program, which another would run
        ("none.png", (4, 5), "No such file"),
    ):
        with pytest.raises(RunError, match=problem):
            gc.Reader(tmp_path / file, {"x": gc.spec(shape, "u8")}, batch=1).next()
    with pytest.raises(RunError, match="no picture is"):
        gc.Reader(name, {"x": gc.spec((20,), "u8")}, batch=1).next()
    for size in range(len(whole)):
        name.write_bytes(whole[:size])
        with suppress(RunError):
            found = gc.Reader(name, {"x": gc.spec((4, 5), "u8")}, batch=1).next()
            np.testing.assert_array_equal(found["x"], np.zeros((1, 4, 5)))
