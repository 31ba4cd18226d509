"""gc.summary: what is recorded, by whom, in which step, in which file; and that nothing of it is
left where nobody records. That it comes in program order: tests/ops/test_host_calls.py."""

from __future__ import annotations

import csv
import json
import re
import struct
import subprocess
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import opened_at

import graphc as gc
from graphc.frontend.summaries.writers import JSONL, Entry, Histogram, Picture

HOSTILE = ("</script>", 'a,b\n"c"', "\x00\x1b[31m", "\ud800", "=1+1", "../../x", "é" * 100, "a/b c")


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.closed = 0

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)

    def close(self) -> None:
        self.closed += 1

    @property
    def told(self) -> list[tuple[str, int, Any]]:
        return [(entry.tag, entry.step, entry.value) for entry in self.entries]


def summed(x: Any) -> Any:
    total = x.sum()
    gc.summary.scalar("total", total)
    return total


# ------------------------------------------------------------------------------------ on and off


def test_nothing_is_left_where_nobody_records() -> None:
    def plain(x: Any, y: Any) -> Any:
        return gc.scan(lambda c, v: (np.tanh(c + v), c), y, x)[0]

    def told(x: Any, y: Any) -> Any:
        gc.summary.histogram("x", np.exp(x))  # its operand is not computed, either

        def body(c: Any, v: Any) -> Any:
            gc.summary.scalar("c", c.sum())
            gc.summary.text("note", "{}", v)
            return np.tanh(c + v), c

        return gc.scan(body, y, x)[0]

    arrays = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    wanted = gc.compile(gc.value_and_grad(lambda *a: plain(*a).sum()))
    found = gc.compile(gc.value_and_grad(lambda *a: told(*a).sum()))
    wanted(*arrays)
    found(*arrays)
    kernels = [
        [image.kernels for image in f._variants.newest.image.images] for f in (wanted, found)
    ]
    assert kernels[0] == kernels[1]
    assert "summary" not in gc.show(found.graph(*arrays))


def test_each_answer_is_traced_once() -> None:
    inner, x, kept = gc.compile(summed), np.ones(3), Kept()
    outer = gc.compile(lambda x: inner(x) + 1)
    for _ in range(2):
        assert outer(x) == 4
        with gc.summary.to(kept) as log:
            for log.step in range(3):
                assert outer(x) == 4
            with gc.summary.paused():
                outer(x)
    assert kept.told == [("total", step, 3.0) for step in (0, 1, 2)] * 2
    assert kept.closed == 2
    assert [c.reason for c in outer.compiles][1:] == [
        "whether summaries are recorded: False -> True"
    ]


def test_steps() -> None:
    kept, fn = Kept(), gc.compile(summed)
    with gc.summary.to(kept, every=2) as log:
        for log.step in range(5):
            fn(np.full(1, float(log.step)))
    assert kept.told == [("total", 0, 0.0), ("total", 2, 2.0), ("total", 4, 4.0)]

    def run(n: Any) -> Any:  # a run that knows its steps
        def body(k: Any, c: Any) -> Any:
            gc.summary.scalar("c", c, step=k)
            return c * 2

        return gc.fori(0, 5, body, n)

    kept = Kept()
    with gc.summary.to(kept, every=2):
        gc.compile(run)(np.float32(1))
    assert kept.told == [("c", 0, 1.0), ("c", 2, 4.0), ("c", 4, 16.0)]

    kept = Kept()
    with gc.summary.to(kept) as log:  # without steps they are counted, in one they are numbered
        for step in (None, 7):
            log.step = step
            for k in range(3):
                gc.summary.scalar("k", k)
    counted = [("k", 0, 0), ("k", 1, 1), ("k", 2, 2)]
    assert kept.told == [*counted, ("k", 7, 0), ("k_1", 7, 1), ("k_2", 7, 2)]


def test_sizes_stay_open_while_recording() -> None:
    kept, fn = Kept(), gc.compile(summed, sizes={"x": ("n",)})
    with gc.summary.to(kept):
        for n in (3, 5, 9):
            fn(np.ones(n))
    assert [value for _, _, value in kept.told] == [3.0, 5.0, 9.0]
    assert len(fn.compiles) == 1


def test_what_cannot_be_recorded_is_refused() -> None:
    s = gc.summary
    kept = Kept()
    with s.to(kept):
        for call in (
            lambda x: s.scalar("a", x),
            lambda x: s.scalar("a", x[0] * 1j),
            lambda x: s.scalar("", x[0]),
            lambda x: s.scalar("a" * 201, x[0]),
            lambda x: s.scalar(3, x[0]),
            lambda x: s.scalar("a", x[0], step=x[0]),
            lambda x: s.image("a", x),
            lambda x: s.image("a", np.reshape(x, (1, 1, 2))),
            lambda x: s.text("a", "{} {}", x),
            lambda x: s.text("a", x),
            lambda x: s.graph(gc.parse("gir 1\ngraph @f() {\n  return\n}")),
        ):
            with pytest.raises(gc.GraphError) as caught:
                gc.compile(lambda x, call=call: (call(x), x)[1])(np.ones(2))
            assert "test_summaries" in str(caught.value)
        with pytest.raises(gc.GraphError, match="shown"):
            s.image("a", np.zeros((0, 3)))
    assert not kept.entries
    for wrong in (lambda: s.to(), lambda: s.to("x", every=0), lambda: s.to(3)):  # type: ignore
        with pytest.raises(gc.GraphError):
            wrong()


def test_a_writer_that_fails_fails_the_run() -> None:
    class Full(Kept):
        def write(self, entry: Entry) -> None:
            raise OSError(28, "No space left on device")

    fn = gc.compile(summed)
    with gc.summary.to(Full()), pytest.raises(gc.RunError, match="No space") as caught:
        fn(np.ones(2))
    assert "test_summaries.py" in str(caught.value)
    with gc.summary.to(Kept()):
        assert fn(np.ones(2)) == 2


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "i64", "u64", "f16", "bf16", "f32", "f64"])
def test_every_dtype_is_recorded(dtype: str) -> None:
    kept = Kept()
    x = np.ones((2, 3), gc.spec((), dtype).dtype.numpy)

    @gc.compile
    def fn(x: Any) -> Any:
        gc.summary.scalar("s", x[0, 0])
        gc.summary.histogram("h", x)
        gc.summary.image("i", x)
        return x

    with gc.summary.to(kept):
        fn(x)
    number, histogram, picture = (entry.value for entry in kept.entries)
    assert number == 1 and histogram.count == 6 and histogram.sum == 6
    assert np.all(picture.pixels == (1 if dtype[0] in "iu" else 255))


def arrays_of(seed: int) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(seed)
    size = int(draw.choice([0, 1, 2, 1000]))
    scale = 10.0 ** draw.choice([-320, -300, -3, 0, 5, 300, 308])
    with np.errstate(over="ignore", invalid="ignore"):
        values = draw.choice([0.0, 1.0], 1) * scale + draw.normal(size=size) * scale
    odd = draw.choice([np.nan, np.inf, -np.inf, 0.0, 1e-320, 1.7e308, -1.7e308, 1 + 2e-16, 1.0], 4)
    return np.concatenate([values, odd[: draw.integers(5)]])


def test_histograms_count_everything_once() -> None:
    for seed in range(300):
        values = arrays_of(seed)
        found = Histogram.of(values)
        kept = values[np.isfinite(values)]
        assert found.count == kept.size == found.counts.sum()
        assert found.not_finite == values.size - kept.size
        assert np.all(np.diff(found.edges) > 0) and len(found.edges) == len(found.counts) + 1
        if kept.size:
            assert (found.low, found.high) == (kept.min(), kept.max())
            assert found.edges[0] <= found.low and found.high <= found.edges[-1]


def decoded(png: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a PNG file without filters."""
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + data
        )
        chunks[kind] = data
        at += 12 + length
    width, height, depth, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    return rows[:, 1:].reshape(height, width, {0: 1, 2: 3, 6: 4}[colours])


def test_images() -> None:
    draw = np.random.default_rng(0)
    for shape in ((1, 1), (5, 7), (5, 7, 1), (4, 3, 3), (2, 9, 4)):
        pixels = draw.integers(0, 256, shape).astype(np.uint8)
        assert np.array_equal(decoded(Picture.of(pixels).png()), pixels.reshape(*shape[:2], -1))
    odd = np.array([[-1.0, 0.0, 0.5, 1.0, 2.0, np.nan, np.inf]])
    assert Picture.of(odd).pixels.ravel().tolist() == [0, 0, 128, 255, 255, 0, 255]
    assert Picture.of(np.array([[-5, 300]])).pixels.ravel().tolist() == [0, 255]
    kept = Kept()
    with gc.summary.to(kept):
        gc.summary.image("b", np.zeros((5, 2, 2, 3)))
    assert [entry.tag for entry in kept.entries] == ["b/0", "b/1", "b/2"]


# ------------------------------------------------------------------------------------ files


def told_to(*places: Any) -> None:
    """Some of everything, by names that nobody should trust."""
    with gc.summary.to(*places) as log:
        for log.step in (0, 1):
            for k, tag in enumerate(HOSTILE):
                gc.summary.scalar(tag, np.float32(0.1 + k + log.step))
                gc.summary.text(f"t{tag}", "{{" + tag.replace("{", "") + "}} {}", k)
        gc.summary.scalar("not", np.float32(np.nan))
        gc.summary.histogram("h", np.arange(10.0))
        gc.summary.image("i", np.arange(6, dtype=np.uint8).reshape(2, 3))
        gc.summary.graph(gc.compile(lambda x: gc.fori(0, 3, lambda k, c: c + x, x)), np.ones(2))


def test_csv_and_json_are_read_back(tmp_path: Path) -> None:
    told_to(tmp_path / "new" / "a.csv", str(tmp_path / "b.jsonl"))
    with (tmp_path / "new" / "a.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    numbers = [line for line in lines if line["kind"] == "scalar"]
    assert [line["tag"] for line in numbers] == [*HOSTILE, *HOSTILE, "not"]
    escaped = [line["tag"].encode("utf-8", "backslashreplace").decode() for line in numbers]
    assert [row["tag"] for row in rows] == escaped
    assert [float(row["value"]) for row in rows[:-1]] == [line["value"] for line in numbers[:-1]]
    assert numbers[0]["value"] == float(np.float32(0.1)) and numbers[-1]["value"] == "nan"
    found = {line["kind"]: line for line in lines}
    assert found["histogram"]["count"] == 10 and sum(found["histogram"]["counts"]) == 10
    assert decoded((tmp_path / found["image"]["file"]).read_bytes()).ravel().tolist() == list(
        range(6)
    )
    assert gc.parse(found["graph"]["value"]).name == "lambda"
    assert {path.name for path in tmp_path.iterdir()} == {"new", "b.jsonl", "b-images"}


def events_of(folder: Path) -> list[Any]:
    """The events of a folder, each with its checksums."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    def masked(data: bytes) -> bytes:
        found = crc32c(data)
        return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    (path,) = folder.glob("events.out.tfevents.*")
    data, events = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert data[8:12] == masked(data[:8])
        record, checksum = data[12 : 12 + length], data[12 + length : 16 + length]
        assert checksum == masked(record)
        events.append(Event.FromString(record))
        data = data[16 + length :]
    return events


def test_events_of_tensorboard_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX declares the messages")
    told_to(tmp_path / "tb")
    version, *events = events_of(tmp_path / "tb")
    assert version.file_version == "brain.Event:2"
    values = [(e.step, v) for e in events for v in e.summary.value]
    numbers = [(s, v.tag, v.simple_value) for s, v in values if v.HasField("simple_value")]
    tags = [tag.encode("utf-8", "backslashreplace").decode() for tag in HOSTILE]
    wanted = [(s, t, np.float32(0.1 + k + s)) for s in (0, 1) for k, t in enumerate(tags)]
    assert numbers[:-1] == wanted and np.isnan(numbers[-1][2])
    texts = [v.tensor.string_val[0].decode() for _, v in values if v.HasField("tensor")]
    assert texts == [f"{{{tag}}} {k}" for k, tag in enumerate(tags)] * 2
    by_tag = {v.tag: v for _, v in values}
    histo = by_tag["h"].histo
    assert (histo.num, histo.sum, histo.sum_squares) == (10, 45, 285)
    assert len(histo.bucket) == len(histo.bucket_limit) and sum(histo.bucket) == 10
    assert decoded(by_tag["i"].image.encoded_image_string).ravel().tolist() == list(range(6))


def test_tensorboard_draws_the_graph(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX declares the messages")
    from tensorboardX.proto.graph_pb2 import GraphDef

    told_to(tmp_path)
    (event,) = (e for e in events_of(tmp_path) if e.graph_def)
    nodes = {node.name: node for node in GraphDef.FromString(event.graph_def).node}
    assert {source.lstrip("^") for node in nodes.values() for source in node.input} <= nodes.keys()
    assert any(name.count("/") > 2 and node.op == "add" for name, node in nodes.items())
    assert all(node.attr["_output_shapes"].list.shape for node in nodes.values())


def test_tensorboard_itself_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX declares the messages")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard reads"
    )
    told_to(tmp_path)
    found = reader.EventAccumulator(str(tmp_path)).Reload()
    tags = found.Tags()
    assert tags["graph"] and tags["histograms"] == ["h"] and tags["images"] == ["i"]
    first = found.Scalars(HOSTILE[0])
    assert [(event.step, event.value) for event in first] == [
        (0, np.float32(0.1)),
        (1, np.float32(1.1)),
    ]


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """The address of a TensorBoard that shows a folder, once it has read it."""
    command = ["-m", "tensorboard.main", "--logdir", str(folder), "--port", "0"]
    options = ["--host", "127.0.0.1", "--load_fast=false"]
    with subprocess.Popen(
        [sys.executable, *command, *options], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr)
            address = next(match[0] for match in found if match)
            while not answer(address, "graphs/info"):
                pass
            yield address
        finally:
            process.terminate()


def answer(address: str, what: str) -> Any:
    with urllib.request.urlopen(f"{address}/data/plugin/{what}") as found:
        return json.load(found)


def test_a_tensorboard_shows_figures_and_draws_the_graph(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX declares the messages")
    pytest.importorskip("tensorboard.main", reason="tensorboard shows them")
    told_to(tmp_path)
    with tensorboard(tmp_path) as address:
        tags = {tag.encode("utf-8", "backslashreplace").decode() for tag in HOSTILE}
        assert {*answer(address, "scalars/tags")["."]} == tags | {"not"}
        rows = answer(address, "scalars/scalars?run=.&tag=not")
        assert [row[1:] for row in rows] == [[1, "NaN"]]
        with opened_at(f"{address}/#graphs", ours=False) as page:
            for kind in ("op", "meta"):  # the parameter, and the box of a line
                page.wait_for_selector(f"g.node.{kind}", state="attached")


def test_without_tensorboardx_one_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX.proto", None)
    with pytest.raises(gc.GraphError, match=r"graphc\[tensorboard\]"):
        gc.summary.to(tmp_path / "tb")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "folder"])
def test_a_place_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    if name == "folder":
        pytest.importorskip("tensorboardX", reason="tensorboardX declares the messages")
    (tmp_path / "file").write_text("")
    with pytest.raises(gc.GraphError, match="cannot write"):
        gc.summary.to(tmp_path / "file" / name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is full")
def test_a_disk_that_is_full_when_all_is_said_is_an_error() -> None:
    kept = Kept()

    def told(end: Any) -> None:
        with gc.summary.to(JSONL("/dev/full"), kept):
            gc.summary.scalar("a", 1)
            end()

    with pytest.raises(gc.GraphError, match="No space"):
        told(list)
    with pytest.raises(KeyError):  # what ended the block is told
        told(lambda: {}[0])
    assert kept.closed == 2
