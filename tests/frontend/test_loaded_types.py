"""What `gc.load` returns is typed: type checkers read this file, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import graphc as gc


def test_a_loaded_graph_has_its_graph(tmp_path: Path) -> None:
    gc.compile(lambda x: x + 1).save(tmp_path / "m.gir", gc.spec(("n", 3), "f32"))
    model = gc.load(tmp_path / "m.gir")
    assert "graph @" in gc.show(model.graph) and "[4,3]" in gc.show(model.bound({"n": 4}))
    model.save(tmp_path / "again.gir")
    built = gc.load(tmp_path / "again.gir").build((2, 3))
    assert built.executable.run([np.ones((2, 3), np.float32)])[0].shape == (2, 3)
