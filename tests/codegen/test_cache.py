"""The object-code cache: round trips, damage, concurrency, untrusted directories, a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from graphc.base.record import replace
from graphc.codegen import cache
from graphc.codegen.cache import Cache, Entry
from graphc.codegen.llvm.target import key_of, named

TARGET = named("x86-64-v3")
KEYS = [key_of(f"kernel {i}", TARGET) for i in range(40)]


def filled(root: Path) -> Cache:
    store = Cache(root)
    store.put(b"object A", {KEYS[0]: "k0", KEYS[1]: "k1"})
    store.put(b"object B", {KEYS[2]: "k2"})
    return store


def test_a_fresh_process_finds_what_another_wrote(tmp_path):
    filled(tmp_path / "c")
    found = Cache(tmp_path / "c").get(KEYS[:4])
    assert found == {
        KEYS[0]: Entry(b"object A", "k0"),
        KEYS[1]: Entry(b"object A", "k1"),
        KEYS[2]: Entry(b"object B", "k2"),
    }
    assert found[KEYS[0]].code is found[KEYS[1]].code


def test_keys_depend_on_everything():
    others = {
        key_of("a", TARGET),
        key_of("b", TARGET),
        key_of("a", replace(TARGET, cpu="other")),
        key_of("a", replace(TARGET, features="+x")),
        key_of("a", replace(TARGET, triple="other")),
        key_of("a", TARGET, "opt0"),
    }
    assert len(others) == 6
    assert key_of("a", TARGET) == key_of("a", TARGET)


def test_directories_are_private(tmp_path):
    filled(tmp_path / "c")
    for folder in (tmp_path / "c", tmp_path / "c" / "packs", tmp_path / "c" / "keys"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("keep", [0, 5, -1])
def test_truncated_pack_is_ignored_and_rewritten(tmp_path, keep):
    store = filled(tmp_path)
    for pack in (tmp_path / "packs").iterdir():
        pack.write_bytes(pack.read_bytes()[:keep])
    assert Cache(tmp_path).get(KEYS) == {}
    assert Cache(tmp_path).entries() == []
    store.put(b"object B", {KEYS[2]: "k2"})
    assert Cache(tmp_path).get([KEYS[2]])[KEYS[2]].code == b"object B"


def test_altered_pack_and_key_are_ignored(tmp_path):
    filled(tmp_path)
    for pack in (tmp_path / "packs").iterdir():
        pack.write_bytes(pack.read_bytes().replace(b"object", b"0bject"))
    assert Cache(tmp_path).get(KEYS) == {}
    (tmp_path / "keys" / KEYS[0]).write_bytes(b"../../etc/passwd\xff")
    assert Cache(tmp_path).get(KEYS) == {}


def test_a_pack_of_another_format_is_ignored(tmp_path):
    import hashlib

    filled(tmp_path)
    for data in (b"another format", b"graphc-pack 1\n\xff\xff", b"graphc-pack 1\n" + bytes(8)):
        name = hashlib.sha256(data).hexdigest()
        (tmp_path / "packs" / name).write_bytes(data)
        (tmp_path / "keys" / KEYS[0]).write_bytes(name.encode())
        assert KEYS[0] not in Cache(tmp_path).get([KEYS[0]])


def test_entries_size_and_clear(tmp_path):
    store = filled(tmp_path)
    assert sorted(pack.symbols for pack in store.entries()) == [("k0", "k1"), ("k2",)]
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert store.size() == on_disk > 0
    assert store.clear() == on_disk
    assert store.size() == 0 and store.entries() == [] and store.get(KEYS) == {}


def test_untrusted_directory_is_ignored_with_one_warning(tmp_path):
    filled(tmp_path)
    tmp_path.chmod(0o777)
    store = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="cache is off") as caught:
        store.put(b"code", {KEYS[5]: "k5"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEYS[:5]) == {}
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert store.get([KEYS[5]])[KEYS[5]].code == b"code"
    assert not (tmp_path / "keys" / KEYS[5]).exists()


def test_a_directory_of_another_user_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.warns(RuntimeWarning, match="not the user's own"):
        assert Cache(tmp_path).get(KEYS) == {}


def test_a_file_in_place_of_the_directory(tmp_path):
    (tmp_path / "c").write_text("no directory")
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert Cache(tmp_path / "c").get(KEYS) == {}


def test_full_disk_warns_once_and_goes_on(tmp_path, monkeypatch):
    store = filled(tmp_path)

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left") as caught:
        store.put(b"one", {KEYS[6]: "k6"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(b"two", {KEYS[7]: "k7"})
    assert len(caught) == 1
    assert store.get([KEYS[6]])[KEYS[6]].code == b"one"
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


WRITER = """
import sys
from pathlib import Path
from graphc.codegen.cache import Cache
from graphc.codegen.llvm.target import key_of, named
target = named("x86-64-v3")
keys = [key_of(f"kernel {i}", target) for i in range(40)]
for round in range(10):
    store = Cache(Path(sys.argv[1]))
    found = store.get(keys)
    for i, key in enumerate(keys):
        code = b"object %d " % i * 500
        assert key not in found or found[key].code == code
        store.put(code, {key: f"k{i}"})
"""


@pytest.mark.slow
def test_concurrent_writers(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = Cache(tmp_path).get(KEYS)
    assert len(found) == 40 and len(list((tmp_path / "packs").iterdir())) == 40


def test_environment_names_the_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "here"))
    assert cache.default().root == tmp_path / "here"
    monkeypatch.delenv("GRAPHC_CACHE_DIR")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.default().root.name == "graphc"
