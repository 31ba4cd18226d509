"""Checkpoints are whole or refused, and the newest good one is found."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from project import ROOT
from safetensors import safe_open

import graphc as gc
from graphc import Checkpoints, load_checkpoint, save_checkpoint
from graphc.errors import CheckpointError
from graphc.frontend.trace.tree import flatten
from graphc.runtime.files import checkpoint as files
from graphc.runtime.files.files import write_atomically


@dataclass
class Layer:
    w: Any
    b: Any


def tree(seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "layers": [Layer(draw.normal(size=(4, 3)).astype("f4"), draw.normal(size=3))],
        "moments": (draw.normal(size=(2, 2)).T, np.float32(0.5), 7, True, 1.5),
        "key": draw.integers(0, 2**32, 2, np.uint32),
        "empty": np.zeros((0, 3), np.int8),
        "half": np.array([1, 2.5, np.inf], ml_dtypes.bfloat16),
        "c": np.array([1 + 2j]),
        "nothing": None,
    }


def assert_equal(a: Any, b: Any) -> None:
    left, shape = flatten(a)
    right, other = flatten(b)
    assert shape is other
    for x, y in zip(left, right):
        assert type(x) is type(y)
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files cannot grow beyond a size: what a full disk looks like to a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ------------------------------------------------------------------------------------ one file


def test_tree_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    values = {"epoch": 3, "loss": [0.1, 1e300], "name": "né"}
    save_checkpoint(path, tree(), values)
    found, read = load_checkpoint(path, tree(1))
    assert_equal(found, tree())
    assert read == values
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_arrays_are_writable_and_own_their_memory(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", {"x": np.arange(5.0), "y": np.arange(3)})
    found, values = load_checkpoint(tmp_path / "a")
    assert values is None
    assert all(a.flags.owndata and a.flags.writeable for a in found.values())


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, {"layers": [{"w": np.arange(6.0).reshape(2, 3)}]}, {"step": 4})
    with safe_open(path, "np") as file:
        assert list(file.keys()) == ["layers.0.w"]
        np.testing.assert_array_equal(file.get_tensor("layers.0.w"), [[0, 1, 2], [3, 4, 5]])
        assert file.metadata()["values"] == '{"step": 4}'


@pytest.mark.slow
def test_every_flipped_bit_and_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, {"w": np.arange(4.0), "k": np.uint8(3)}, {"step": 1})
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
        path.write_bytes(torn)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="longer"):
        load_checkpoint(path)
    path.write_bytes(whole)
    load_checkpoint(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"w": np.ones(3)}, tmp_path / "foreign.safetensors", {"format": "np"})
    (tmp_path / "text").write_text("step 7\n" * 100)
    np.save(tmp_path / "array.npy", np.ones(300))
    (tmp_path / "folder").mkdir()
    for name in ("foreign.safetensors", "text", "array.npy", "folder", "missing"):
        with pytest.raises(CheckpointError, match=name):
            load_checkpoint(tmp_path / name)


def test_a_header_cannot_ask_for_more_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_checkpoint(path, {"w": np.zeros(4)})
    data = path.read_bytes()
    for shape in (b"[9000000000000]", b"[0,99999999999999999999]", b"[-1]", b'"x"', b"[1.5]"):
        length = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + length].replace(b"[4]", shape)
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [("text", "dtype <U4"), (object(), "object"), (np.array(["2020"], "M8[Y]"), "datetime")],
)
def test_leaves_that_are_no_arrays(tmp_path: Path, leaf: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(tmp_path / "a", {"x": leaf})
    assert not list(tmp_path.iterdir())


def test_values_that_are_no_json(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="JSON"):
        save_checkpoint(tmp_path / "a", {}, {"x": np.ones(3)})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"w": np.zeros((2, 3)), "b": np.zeros(3)}, r"w is float64\[3, 2\], wanted is float64"),
        ({"w": np.zeros((3, 2), "f4"), "b": np.zeros(3)}, "wanted is float32"),
        ({"w": np.zeros((3, 2))}, "b is not wanted"),
        ({"w": np.zeros((3, 2)), "b": np.zeros(3), "c": 1}, "c is missing"),
    ],
)
def test_a_template_that_does_not_fit(tmp_path: Path, template: Any, message: str) -> None:
    save_checkpoint(tmp_path / "a", {"w": np.ones((3, 2)), "b": np.ones(3)})
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / "a", template)


def test_specs_are_templates(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", {"w": np.ones((3, 2), "f4")})
    found, _ = load_checkpoint(tmp_path / "a", {"w": gc.spec((3, 2), "f32")})
    np.testing.assert_array_equal(found["w"], np.ones((3, 2)))


# ------------------------------------------------------------------------------------ a folder


def test_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run", keep=2) as checkpoints:
        assert checkpoints.latest() is None
        for step in (3, 11, 200):
            checkpoints.save(step, {"w": np.full(3, step)}, {"step": step})
        checkpoints.wait()
        assert checkpoints.steps() == [11, 200]
        found = checkpoints.latest({"w": np.zeros(3, int)})
    assert found is not None
    assert (found.step, found.values, found.tree["w"][0]) == (200, {"step": 200}, 200)
    older, _ = load_checkpoint(checkpoints.folder / "step-000000000011.safetensors")
    np.testing.assert_array_equal(older["w"], [11, 11, 11])


def test_damaged_checkpoints_are_passed_over(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, {"w": np.full(50, step)})
    newest, middle = (tmp_path / f"step-{step:012d}.safetensors" for step in (3, 2))
    newest.write_bytes(newest.read_bytes()[:-7])
    middle.write_bytes(b"")
    checkpoints = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match="damaged") as caught:
        found = checkpoints.latest()
    assert len(caught) == 2
    assert found is not None and found.step == 1
    checkpoints.save(2, found.tree)
    checkpoints.wait()
    assert checkpoints.steps() == [1, 2]


def test_no_good_checkpoint_is_an_error(tmp_path: Path) -> None:
    Checkpoints(tmp_path)
    (tmp_path / "step-000000000005.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        Checkpoints(tmp_path).latest()


def test_an_older_step_does_not_hide_behind_another_run(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(10, {"w": 1.0})
    again = Checkpoints(tmp_path)
    for step, message in ((4, "after step 4"), (-1, "whole number"), (2.5, "whole number")):
        with pytest.raises(CheckpointError, match=message):
            again.save(step, {"w": 2.0})
    again.close()
    assert Checkpoints(tmp_path).steps() == [10]


def test_a_cleared_folder_starts_over(tmp_path: Path) -> None:
    (tmp_path / "loss.png").write_bytes(b"a picture")
    with Checkpoints(tmp_path, every_steps=5) as checkpoints:
        checkpoints.save(10, {"w": 1.0})
        checkpoints.clear()
        assert checkpoints.latest() is None
        assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]
        assert [checkpoints.offer(step, {"w": 2.0}) for step in (4, 5)] == [False, True]
    assert checkpoints.steps() == [5]


def test_steps_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("graphc.runtime.files.checkpoint.time.monotonic", lambda: now[0])
    by_steps = Checkpoints(tmp_path / "a", every_steps=4)
    assert [s for s in range(1, 13) if by_steps.offer(s, {"x": s})] == [4, 8, 12]
    by_seconds = Checkpoints(tmp_path / "b", every_seconds=10)
    saved = []
    for step in range(1, 31):
        now[0] += 1
        if by_seconds.offer(step, {"x": step}):
            saved.append(step)
    assert saved == [10, 20, 30]
    by_steps.close(), by_seconds.close()


def test_saving_copies_and_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    write = write_atomically

    def slowly(path: Path, pieces: Any, **options: Any) -> None:
        release.wait()
        write(path, pieces, **options)

    monkeypatch.setattr(files, "write_atomically", slowly)
    checkpoints, weights, values = Checkpoints(tmp_path), np.ones(1000), {"losses": [1.0]}
    checkpoints.save(1, {"w": weights}, values)
    weights[:] = 2  # training goes on in place
    values["losses"].append(2.0)
    assert not checkpoints.steps()
    release.set()
    found = checkpoints.latest()
    assert found is not None and found.values == {"losses": [1.0]}
    np.testing.assert_array_equal(found.tree["w"], np.ones(1000))


@pytest.mark.parametrize(("behind", "distance"), [(0, 0), (1, 1), (3, 3), (None, 10)])
def test_a_checkpoint_is_on_the_disk_before_many_more_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int | None, distance: int
) -> None:
    """Every write goes on until the last step that does not wait for it has begun."""
    events: list[tuple[str, int]] = []
    begun = [threading.Event() for _ in range(31)]
    write = write_atomically

    def slowly(path: Path, pieces: Any, **options: Any) -> None:
        step = int(path.stem[5:])
        assert step == 30 or begun[step + distance].wait(300)
        write(path, pieces, **options)
        events.append(("durable", step))

    monkeypatch.setattr(files, "write_atomically", slowly)
    with Checkpoints(tmp_path, every_steps=10, behind=behind) as checkpoints:
        for step in range(1, 31):
            events.append(("begin", step))
            begun[step].set()
            checkpoints.offer(step, {"w": float(step)})
    for step in (10, 20):
        assert events.index(("durable", step)) > events.index(("begin", step + distance))
        if step + distance < 30:
            assert events.index(("durable", step)) < events.index(("begin", step + distance + 1))


def test_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"w": np.ones(10)})
    checkpoints.wait()
    with largest_file(20_000):
        for step in (2, 3):
            checkpoints.save(step, {"w": np.ones(10_000)})
            with pytest.raises(CheckpointError, match="cannot write") as caught:
                checkpoints.wait()
            assert "unchanged" in str(caught.value)
    checkpoints.close()
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000000001.safetensors"]
    found = checkpoints.latest()
    assert found is not None and found.step == 1


def test_error_of_a_write_surfaces_in_the_next_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with largest_file(100):
        checkpoints.save(1, {"w": np.ones(1000)})
        with pytest.raises(CheckpointError, match="cannot write"):
            checkpoints.save(2, {"w": np.ones(1000)})
    checkpoints.save(3, {"w": np.ones(1000)})
    checkpoints.close()
    assert checkpoints.steps() == [3]


def test_error_of_the_block_is_not_hidden(tmp_path: Path) -> None:
    def train() -> None:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, {"w": np.ones(1000)})
            raise ZeroDivisionError

    with largest_file(100), pytest.raises(ZeroDivisionError):
        train()


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    leftover = tmp_path / ".step-000000000009.safetensors.12345.tmp"
    leftover.write_bytes(b"half")
    (tmp_path / ".other.tmp").write_bytes(b"not ours")
    Checkpoints(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".other.tmp"]


@pytest.mark.parametrize(
    "options",
    [{"keep": 0}, {"every_steps": 0}, {"every_seconds": -1.0}, {"behind": -1}, {"behind": True}],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        Checkpoints(tmp_path, **options)


def test_nothing_is_reported_where_all_is_well(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, tree())
            assert checkpoints.latest(tree()) is not None


def test_variables_are_saved_and_assigned(tmp_path: Path) -> None:
    weights = gc.Variable(np.arange(3.0), container=str(tmp_path))
    count = gc.Variable(gc.spec((), "i64"), container=str(tmp_path))
    count.assign(5)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"w": weights, "count": count})
        weights.assign_add(1.0), count.assign(0)
        found = checkpoints.latest({"w": weights, "count": count})
    assert found is not None and found.tree["w"] is weights
    np.testing.assert_array_equal(weights.value, [0, 1, 2])
    assert count.value == 5
    wider = gc.Variable(np.ones(4), container=str(tmp_path))
    with pytest.raises(CheckpointError, match="w is float64"):
        checkpoints.latest({"w": wider, "count": count})
    np.testing.assert_array_equal(wider.value, np.ones(4))
    gc.reset_container(str(tmp_path))


# ------------------------------------------------------------------------------------ kill -9


def test_kills_tear_nothing_and_lose_no_bit() -> None:
    """The benchmark, with fewer kills: `python -m benchmarks.kills --count 300` is the whole."""
    command = [sys.executable, "-m", "benchmarks.kills", "--count", "20"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["torn"] == report["late"] == 0 and report["resumed bit-equal"] is True
    assert report["kills"] == 20 and report["updates"] > 20  # it went on between the kills
    assert report["leftovers at once"] <= 1 and report["leftovers in the end"] == 0
