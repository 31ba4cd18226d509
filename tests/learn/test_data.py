"""Loaders hand out every sample once per epoch, in an order that can be continued anywhere."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from graphc.errors import FeedError
from graphc.learn import data

X = np.arange(60.0).reshape(20, 3)
Y = np.arange(20)


EARLIER: set[threading.Thread] = set()  # what other files' tests have left


def prefetchers() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "prefetch"} - EARLIER


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    EARLIER.update(prefetchers())
    yield
    assert not prefetchers()


def flat(batches: Any) -> list[int]:
    return [int(v) for batch in batches for v in batch]


# ------------------------------------------------------------------------------------ arrays


@pytest.mark.parametrize("tree", [(X, Y), {"y": Y, "x": X}, [X, {"a": (Y,)}], X])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_have_the_structure_of_the_data(tree: Any, shuffle: bool) -> None:
    loader = data.arrays(tree, 8, shuffle=shuffle)
    batches = list(loader)
    assert len(batches) == len(loader) == 3
    if isinstance(tree, dict):
        assert list(batches[0]) == ["y", "x"]
        batches = [(b["x"], b["y"]) for b in batches]
    elif isinstance(tree, list):
        batches = [(b[0], b[1]["a"][0]) for b in batches]
    elif tree is X:
        batches = [(b, b[:, 0].astype(int) // 3) for b in batches]
    assert [len(y) for _, y in batches] == [8, 8, 4]
    assert sorted(flat(y for _, y in batches)) == list(range(20))
    for x, y in batches:
        np.testing.assert_array_equal(x, X[y])


def test_drop_last() -> None:
    loader = data.arrays(Y, 8, drop_last=True)
    assert len(loader) == 2
    assert flat(loader) == list(range(16))


def test_batches_in_order_are_views() -> None:
    assert all(np.shares_memory(batch, X) for batch in data.arrays(X, 8))


@pytest.mark.parametrize(
    "source", [X.T.copy().T, X.astype(">f8"), X[:, ::-1], np.asfortranarray(X), X[::-1]]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_need_no_copy(source: Any, shuffle: bool) -> None:
    for batch in data.arrays(source, 8, shuffle=shuffle):
        assert batch.flags.c_contiguous and batch.flags.aligned
        assert batch.dtype is np.dtype("f8")  # an equal one would leave the native entry
    np.testing.assert_array_equal(np.concatenate(list(data.arrays(source, 8))), source)


def test_mapped_arrays_are_read_batch_by_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = list(data.arrays(mapped, 8))
    assert all(np.shares_memory(batch, mapped) and type(batch) is np.ndarray for batch in found)


# ------------------------------------------------------------------------------------ order


@given(
    count=st.integers(1, 300),
    batch=st.integers(1, 320),
    seed=st.integers(0, 2**63 - 1),
    prefetch=st.integers(0, 3),
)
@examples(13)
def test_every_epoch_is_a_permutation(count: int, batch: int, seed: int, prefetch: int) -> None:
    def loader() -> data.Loader:
        return data.arrays(np.arange(count), batch, shuffle=True, seed=seed, prefetch=prefetch)

    first, again = loader(), loader()
    epochs = [flat(first) for _ in range(3)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert epochs == [flat(again) for _ in range(3)]
    if count > 30:
        assert len({tuple(epoch) for epoch in epochs}) == 3


def test_order_is_the_same_on_every_machine() -> None:
    assert data.permutation(10, 7, 0).tolist() == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0]
    assert data.permutation(1, 0, 0).tolist() == [0]


def test_order_is_uniform() -> None:
    """Every sample comes first about equally often: chi-squared of 10 cells, p > 1e-6."""
    firsts = np.bincount([data.permutation(10, 3, k)[0] for k in range(3000)], minlength=10)
    assert ((firsts - 300) ** 2 / 300).sum() < 46


def test_other_seeds_give_other_orders() -> None:
    orders = [tuple(data.arrays(np.arange(50), shuffle=True, seed=s).order(0)) for s in range(20)]
    assert len(set(orders)) == 20


def test_a_broken_off_epoch_is_followed_by_a_new_one() -> None:
    loader = data.arrays(Y, 8, shuffle=True)
    for _ in loader:
        break
    assert sorted(flat(loader)) == list(range(20))
    assert (loader.epoch, loader.index) == (2, 0)


# ------------------------------------------------------------------------------------ position


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stop", range(10))
def test_position_is_restored_exactly(stop: int, prefetch: int) -> None:
    """After any number of batches, in any epoch, the rest comes as it would have come."""

    def loader() -> data.Loader:
        return data.arrays(Y, 7, shuffle=True, seed=5, prefetch=prefetch)

    def batches(source: data.Loader, count: int) -> list[list[int]]:
        made = []
        while len(made) < count:
            for batch in source:
                made.append(batch.tolist())
                if len(made) == count:
                    break
        return made

    whole, part, rest = batches(loader(), 9), loader(), loader()
    first = batches(part, stop)
    rest.restore(json.loads(json.dumps(part.state())))
    assert first + batches(rest, 9 - stop) == whole


def test_position_counts_what_was_handed_out_not_what_was_made_ahead() -> None:
    loader = data.arrays(Y, 2, prefetch=5)
    stream = iter(loader)
    next(stream), next(stream)
    time.sleep(0.05)
    assert loader.state()["index"] == 2
    stream.close()  # type: ignore[attr-defined]


def test_position_of_other_data_is_refused() -> None:
    state = data.arrays(Y, 8).state()
    for other in (data.arrays(Y[:10], 8), data.arrays(Y, 4), data.arrays(Y, 8, shuffle=True)):
        with pytest.raises(FeedError, match="another loader"):
            other.restore(state)
    with pytest.raises(FeedError, match="no position"):
        data.arrays(Y, 8).restore({"step": 3})


# ------------------------------------------------------------------------------------ prefetching


class Numbers:
    """A dataset of 100 samples that counts what is read and fails at one of them."""

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at
        self.read: list[int] = []
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return 100

    def __getitem__(self, k: int) -> Any:
        if k == self.fails_at:
            raise KeyError(f"sample {k}")
        self.read.append(k)
        self.threads.add(threading.current_thread().name)
        return {"x": np.full(2, k, "f4"), "y": k}


def test_a_thread_makes_batches_ahead_but_not_far() -> None:
    numbers = Numbers()
    stream = iter(data.Loader(numbers, 10, prefetch=3))
    next(stream)
    while len(numbers.read) < 40:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(numbers.read) == 40  # the one in use and three ahead
    assert numbers.threads == {"prefetch"}
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_errors_surface_where_their_batch_would_have_come(prefetch: int) -> None:
    stream = iter(data.Loader(Numbers(fails_at=34), 10, prefetch=prefetch))
    assert [next(stream)["y"][0] for _ in range(3)] == [0, 10, 20]
    with pytest.raises(KeyError, match="sample 34"):
        next(stream)


def test_broken_off_iteration_leaves_no_thread() -> None:
    loader = data.Loader(Numbers(), 10)
    for _ in range(20):
        for _batch in loader:
            break
    assert not prefetchers()
    stream = iter(loader)
    next(stream)
    assert prefetchers()
    del stream
    assert not prefetchers()


def test_an_iterator_that_has_ended_stays_ended() -> None:
    stream = iter(data.Loader(Numbers(), 50))
    assert len(list(stream)) == 2
    assert list(stream) == []


def test_transform_is_called_in_the_thread() -> None:
    names = []

    def halved(batch: Any) -> Any:
        names.append(threading.current_thread().name)
        return batch / 2

    found = list(data.arrays(X, 10, transform=halved))
    np.testing.assert_array_equal(np.concatenate(found), X / 2)
    assert names == ["prefetch"] * 2


# ------------------------------------------------------------------------------------ text


@pytest.fixture
def poem(tmp_path: Path) -> Path:
    path = tmp_path / "poem.txt"
    path.write_text("To be, or not to be:\n\nthat is the question – 𝛼 ö\n", encoding="utf-8")
    return path


def _source(loader: Any) -> Any:
    """What it is read from, of a class of its own."""
    return loader.source


def test_windows_are_the_text_and_the_text_one_later(poem: Path) -> None:
    loader = data.text(poem, length=8, batch=2)
    vocabulary, whole = _source(loader).vocabulary, poem.read_text(encoding="utf-8")
    assert len(vocabulary) == len(set(whole)) == len(vocabulary.characters)
    pairs = [(x, y) for xs, ys in loader for x, y in zip(xs, ys)]
    assert vocabulary.decode(np.concatenate([x for x, _ in pairs])) == whole[: 8 * len(pairs)]
    assert vocabulary.decode(np.concatenate([y for _, y in pairs])) == whole[1 : 8 * len(pairs) + 1]
    assert len(pairs) == (len(whole) - 1) // 8
    x, y = next(iter(loader))
    assert x.dtype == y.dtype == np.int32 and x.flags.c_contiguous and y.flags.c_contiguous


def test_bytes_are_read_back(poem: Path) -> None:
    loader = data.text([poem, poem], length=5, by="byte", stride=1, batch=1000)
    (x, _), raw = next(iter(loader)), poem.read_bytes() * 2
    assert len(x) == len(raw) - 5
    assert x[:, 0].tolist() == list(raw[:-5])
    assert _source(loader).vocabulary.decode(list(raw)) == raw.decode()


def test_vocabulary_refuses_what_it_does_not_have() -> None:
    vocabulary = data.Characters("hello")
    assert vocabulary.encode("hole").tolist() == [1, 3, 2, 0]
    for text in ("hex", "h!", "𝛼"):
        with pytest.raises(FeedError, match="the vocabulary has no"):
            vocabulary.encode(text)


def test_lines_are_padded(poem: Path) -> None:
    loader = data.lines(poem, length=12, batch=4)
    (batch,) = loader
    rows = [_source(loader).vocabulary.decode(ids) for ids in batch["ids"]]
    assert rows == ["To be, or no", "that is the "]
    assert data.lines(poem, length=30).source.rows(slice(0, 1))["ids"][0, 20:].tolist() == [0] * 10


# ------------------------------------------------------------------------------------ images


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for label, name in enumerate(("cats", "dogs")):
        (tmp_path / name).mkdir()
        for k in range(3):
            pixels = np.full((6, 4, 3), 40 * label + 10 * k, np.uint8)
            pixels[0, 0] = (255, 0, 0)
            image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    (tmp_path / "dogs" / "notes.txt").write_text("no image")
    return tmp_path


def test_images_of_a_folder_of_classes(pictures: Path) -> None:
    loader = data.images(pictures, batch=4, dtype="u8")
    assert _source(loader).classes == ("cats", "dogs")
    pixels = np.concatenate([x for x, _ in loader])
    labels = np.concatenate([y for _, y in loader])
    assert pixels.shape == (6, 3, 6, 4) and pixels.dtype == np.uint8
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert pixels[:, 1, 3, 3].tolist() == [0, 10, 20, 40, 50, 60]
    assert pixels[0, :, 0, 0].tolist() == [255, 0, 0]


def test_images_of_a_list_resized(pictures: Path) -> None:
    files = [*sorted(pictures.glob("cats/*")), pictures / "dogs/0.png"]
    (batch,) = data.images(files, (3, 5), channels=1)
    assert batch.shape == (4, 1, 3, 5) and batch.dtype == np.float32
    assert batch.min() >= 0 and batch.max() <= 1 and batch.flags.c_contiguous


def test_bad_images_name_their_file(pictures: Path) -> None:
    from PIL import Image

    Image.new("RGB", (7, 7)).save(pictures / "dogs" / "9.png")
    with pytest.raises(FeedError, match=r"9\.png is 7x7"):
        list(data.images(pictures))
    (pictures / "cats" / "1.png").write_bytes(b"\x89PNG but torn")
    with pytest.raises(FeedError, match=r"1\.png cannot be read"):
        list(data.images(pictures, (6, 4)))


def test_images_without_pillow(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(FeedError, match="Pillow"):
        data.images(pictures)


# ------------------------------------------------------------------------------------ errors


class Uneven:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return np.zeros(k)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.arrays((X, Y[:5])), "1 has 5"),
        (lambda: data.arrays(()), "needs arrays"),
        (lambda: data.arrays(3.0), "needs arrays"),
        (lambda: data.arrays(np.array(["a", "b"])), "hold numbers"),
        (lambda: data.arrays(X[:0]), "not one batch: 0 samples"),
        (lambda: data.arrays(X, 32, drop_last=True), "not one batch"),
        (lambda: data.arrays(X, 0), "batch must be"),
        (lambda: data.arrays(X, seed=-1), "seed must be"),
        (lambda: data.arrays(X, 2.5), "batch must be"),
        (lambda: data.Loader(iter(X)), "no __len__"),
        (lambda: list(data.Loader(Uneven(), 2)), r"shapes \[0\], \[1\]"),
        (lambda: data.windows(Y, 0), "length must be"),
        (lambda: data.windows(X, 3), "one row of integers"),
        (lambda: data.windows(Y, 40), "not one batch"),
        (lambda: data.text("/nowhere/at.all", 4), "cannot read /nowhere"),
        (lambda: data.text(__file__, 4, by="word"), "not by 'word'"),
        (lambda: data.images("/nowhere"), "no folder"),
        (lambda: data.images([], channels=2), "2 channels"),
    ],
)
def test_bad_input_is_one_clear_error(make: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        make()


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"text \xff")
    with pytest.raises(FeedError, match=r"a\.bin is not UTF-8 \(byte 5\)"):
        data.text(tmp_path / "a.bin", 2)
