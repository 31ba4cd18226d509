"""Files that are read into memory of our own: in pieces, whole, cut off meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphc.errors import GraphError
from graphc.runtime.files import stable_file
from graphc.runtime.files.stable_file import OpenFile


@pytest.mark.parametrize("piece", [1, 7, 100, 101, 1 << 30])
def test_pieces_are_put_together(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stable_file, "_PIECE", piece)
    data = bytes(range(101))
    path = tmp_path / "data"
    path.write_bytes(data)
    source = OpenFile(path)
    assert source.whole() == data
    assert source.read(0, 101).tobytes() == data
    assert source.read(40, 30).tobytes() == data[40:70]
    assert not source.read(40, 30).flags.writeable


def test_an_empty_file_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    source = OpenFile(tmp_path / "data")
    assert source.whole() == b""
    assert source.read(0, 0).size == 0


def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(100))
    source = OpenFile(path)
    path.write_bytes(bytes(60))
    for reads in (source.whole, lambda: source.read(0, 100), lambda: source.read(60, 1)):
        with pytest.raises(GraphError, match="data has become shorter while it was read"):
            reads()
