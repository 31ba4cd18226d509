"""Variables in files: saved graphs, compiled files and dumps carry their values."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from edited_files import edited

import graphc as gc
from graphc.cli.commands import main
from graphc.errors import GraphError, RunError
from graphc.runtime.files import gcx_writer

SECOND = """
import sys, numpy as np, graphc as gc
f = gc.load(sys.argv[1])
for _ in range(3):
    made = f(np.ones(3))
found = gc.load(sys.argv[1])(np.ones(3))
compiles = "graphc.codegen.build" in sys.modules
print(made.tolist(), found.tolist(), compiles)
"""


def in_another_process(path):
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_values_travel_with_saved_graphs(home, tmp_path):
    v = gc.Variable(np.arange(3.0), name="v")
    big = gc.Variable(np.full(100, 2.0), name="big")
    none = gc.Variable(np.zeros((0, 2)), name="none")
    step = gc.compile(lambda x: v.assign_add(x * big[0]) + none.sum())
    step(np.ones(3))
    saved, compiled = tmp_path / "m.gir", tmp_path / "m.gcx"
    step.save(saved, np.ones(3))
    wanted = "[8.0, 9.0, 10.0] [4.0, 5.0, 6.0]"  # what is loaded again starts again
    assert in_another_process(saved) == f"{wanted} True"
    gcx_writer.save(step.executable(np.ones(3)).image, compiled)
    assert in_another_process(compiled) == f"{wanted} False"
    main(["compile", str(saved), "-o", str(compiled)])
    assert in_another_process(compiled) == f"{wanted} False"
    step(np.ones(3))
    for file in (saved, compiled):
        np.testing.assert_array_equal(gc.load(file)(np.ones(3)), [4, 5, 6])
        assert v.value.tolist() == [4, 5, 6]
    for count, file in enumerate((saved, compiled)):
        shared = gc.load(file, share=home.name)(np.ones(3))
        np.testing.assert_array_equal(shared, np.add([6, 7, 8], 2 * count))
        assert v.value.tolist() == shared.tolist()
    (tmp_path / "m.safetensors").unlink()
    home.reset()
    with pytest.raises(GraphError, match="which is not beside it"):
        gc.load(saved)


def test_dumped_stages_run(home, tmp_path):
    v = gc.Variable(np.arange(3.0), name="v")
    gc.compile(lambda x: v.assign_add(x), dump=tmp_path)(np.ones(3))
    home.reset()
    for stage in sorted(tmp_path.glob("*.gir")):
        home.reset()
        np.testing.assert_array_equal(gc.load(stage)(np.ones(3)), [1, 2, 3])
        main(["run", str(stage), "--seed", "0", "--check"])


def test_audit_counts_variables(home, tmp_path, capsys):
    w, b = gc.Variable(np.zeros((20, 10)), name="w"), gc.Variable(np.zeros(10), name="b")
    gc.compile(lambda x: x @ w + b).save(tmp_path / "m.gir", np.ones((4, 20)))
    main(["audit", str(tmp_path / "m.gir"), "--json"])
    record = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in record["variables"]] == [f"{home.name}/w", f"{home.name}/b"]
    assert record["total"]["parameters"] == 210
    main(["audit", str(tmp_path / "m.gir")])
    assert "210 parameters in 0 constants and 2 variables" in capsys.readouterr().out


def compiled_counter(path):
    v = gc.Variable(np.zeros(4), name="v")
    step = gc.compile(lambda: v.assign_add(1))
    gcx_writer.save(step.executable().image, path)
    return v


@pytest.mark.parametrize("place", [1000, -1000, "here", None, [0], 0.5])
def test_damaged_places_of_values(home, tmp_path, place):
    compiled_counter(tmp_path / "m.gcx")
    home.reset()

    def change(_entries, metadata):
        metadata["variables"][0][-1] = place

    edited(tmp_path / "m.gcx", change)
    if place == -1000:  # no value was saved
        with pytest.raises(RunError, match="before it has a value"):
            gc.load(tmp_path / "m.gcx")()
    else:
        with pytest.raises(GraphError, match="damaged"):
            gc.load(tmp_path / "m.gcx")


def test_a_variable_of_another_type_is_there_already(home, tmp_path):
    compiled_counter(tmp_path / "m.gcx")
    home.reset()
    gc.Variable(np.zeros(3), name="v")
    with pytest.raises(RunError, match=r"is used as f64\[4\]"):
        gc.load(tmp_path / "m.gcx", share=True)()


@pytest.mark.parametrize(
    "line", ['{"main": 3}', '{"main": {"v": 3}}', "{", '{"main": {"v": "00"}}']
)
def test_damaged_lines_of_variables(home, tmp_path, line):
    v = gc.Variable(np.arange(3.0), name="v")
    path = tmp_path / "m.gir"
    gc.compile(lambda x: x + v).save(path, np.ones(3))
    home.reset()
    lines = path.read_text().splitlines()
    assert lines[1].startswith("# variables ")
    line = line.replace("main", home.name)
    path.write_text("\n".join([lines[0], f"# variables {line}", *lines[2:]]))
    if line == "{":  # a comment like any other
        with pytest.raises(RunError, match="was reset"):
            gc.load(path, share=True)(np.ones(3))
        with pytest.raises(RunError, match="before it has a value"):
            gc.load(path)(np.ones(3))
        return
    with pytest.raises(GraphError, match=r"not understood|names a digest|which is not in"):
        gc.load(path)


OVERWRITE = """gir 1
graph @f(%0 x: f32[3], %1 go: bool[]) {
  %2 = cond(%1, %0) : f32[3] {
    graph @yes(%0 a: f32[3]) {
      %1 = assign(%0) {name="w", container="NAME"} : f32[3]
      return %0
    }
    graph @no(%0 a: f32[3]) {
      return %0
    }
  }
  return %2
}
"""


def stored(graph, path):
    path.write_text(graph)
    compiled = path.with_suffix(".gcx")
    main(["compile", str(path), "-o", str(compiled)])
    return path, compiled


def test_a_strangers_graph_neither_reads_nor_changes_variables(home, tmp_path):
    w = gc.Variable(np.ones(3, "f4"), name="w")
    text = f'gir 1\ngraph @f() {{\n  %1 = read() {{name="w", container="{home.name}", '
    text += "type=f32[3]} : f32[3]\n  return %1\n}\n"
    for file in stored(text, tmp_path / "read.gir"):
        saved = file.suffix == ".gcx"  # it holds the value of when it was compiled
        if not saved:
            with pytest.raises(RunError, match="before it has a value"):
                gc.load(file)()
        assert gc.load(file, share=True)().tolist() == [1, 1, 1]
    for file in stored(OVERWRITE.replace("NAME", home.name), tmp_path / "write.gir"):
        loaded = gc.load(file)
        if file.suffix == ".gir":  # which holds no value
            gc.variables(loaded.containers[home.name])["w"].assign(5)
        loaded(np.zeros(3, "f4"), True)
        assert w.value.tolist() == [1, 1, 1]
        (own,) = [loaded.containers[home.name]]
        assert gc.variables(own)["w"].value.tolist() == [0, 0, 0]
        inside = gc.compile(lambda x, go, f=loaded: f(x, go))
        if file.suffix == ".gir":  # a call inside a trace
            inside(np.full(3, 7, "f4"), True)
            assert gc.variables(own)["w"].value.tolist() == [7, 7, 7]
            assert w.value.tolist() == [1, 1, 1]
    with pytest.raises(GraphError, match="has no variable in it"):
        gc.load(tmp_path / "write.gir", share=["elsewhere"])


def test_a_line_of_variables_makes_none_that_the_graph_does_not_use(home, tmp_path):
    v = gc.Variable(np.arange(3.0), name="v")
    path = tmp_path / "m.gir"
    gc.compile(lambda x: x + v).save(path, np.ones(3))
    path.write_text(path.read_text().replace(f'"{home.name}": {{', '"planted": {'))
    gc.load(path)
    assert gc.variables("planted") == {}
