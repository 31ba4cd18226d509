"""The command line, run as users run it, and the files it reads and writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import graphc as gc
from graphc.frontend.files.gir_files import options_of
from graphc.runtime.files import gcx_reader

rng = np.random.default_rng(1)
X = rng.standard_normal((6, 8)).astype(np.float32)
W = rng.standard_normal((8, 5)).astype(np.float32)


def model(x, w, scale):
    h = np.tanh(x @ w)
    return {"y": h * scale, "total": h.sum(axis=0)}


EXPECTED = {"y": np.tanh(X @ W) * 2, "total": np.tanh(X @ W).sum(axis=0)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    gc.compile(model).save(made / "m.gir", X, W, np.float32(2))
    big = rng.standard_normal((40, 50))
    gc.compile(lambda x: x @ big + 1).save(made / "big.gir", gc.spec(("N", 40), "f64"))
    np.save(made / "x.npy", X)
    np.savez(made / "w.npz", w=W)
    np.save(made / "bigx.npy", np.ones((3, 40)))
    np.savez(made / "pickled.npz", x=np.array([{}], object))
    torn = bytearray((made / "w.npz").read_bytes())
    torn[len(torn) // 2] ^= 1
    (made / "torn.npz").write_bytes(torn)
    return made


def feeds(folder):
    return ("--feed", f"x={folder}/x.npy", "--feed", f"{folder}/w.npz", "--feed", "scale=2.0")


def check(path):
    with np.load(path) as found:
        assert list(found) == ["y", "total"]
        for name, wanted in EXPECTED.items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------ start-up


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_import_is_light():
    heavy = "{'numba', 'scipy', 'lark', 'llvmlite', 'numpy', 'rich'}"
    code = f"import sys, graphc, graphc.cli.commands; print(sorted({heavy} & sys.modules.keys()))"
    assert python(code).stdout.strip() == "[]"


def test_public_names():
    names = dir(gc)
    assert {"compile", "spec", "load", "parse", "show", "exp", "sum", "GraphError"} <= set(names)
    for name in names:
        assert getattr(gc, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        gc.no_such_name  # noqa: B018


def test_a_compiled_file_runs_without_the_compiler(folder, run):
    assert run("compile", folder / "m.gir", "-o", folder / "alone.gcx")[0] == 0
    code = (
        "import sys, numpy as np, graphc as gc\n"
        f"f = gc.load({str(folder / 'alone.gcx')!r})\n"
        f"x, w = np.load({str(folder / 'x.npy')!r}), np.load({str(folder / 'w.npz')!r})['w']\n"
        "y = f(x, scale=2.0, w=w)\n"
        "print(float(y['total'][0]))\n"
        "banned = ('numba', 'lark', 'llvmlite', 'graphc.frontend', 'graphc.passes', "
        "'graphc.codegen', 'graphc.ir', 'graphc.ops')\n"
        "print([m for m in sys.modules if m.startswith(banned)])\n"
    )
    lines = python(code).stdout.split("\n")
    assert abs(float(lines[0]) - EXPECTED["total"][0]) < 1e-5
    assert lines[1] == "[]"


# ------------------------------------------------------------------------------------ commands


def test_every_form_of_a_model_runs(folder, run):
    status, _, errors = run(
        "compile", folder / "m.gir", "-o", folder / "m.gcx", "--dump", folder / "dump"
    )
    assert status == 0, errors
    stages = sorted((folder / "dump").glob("*.gir"))
    names = [path.stem.split("-")[1] for path in stages]
    assert names[0] == "trace"
    assert {"partition", "schedule", "plan"} <= set(names)
    for path in [folder / "m.gir", folder / "m.gcx", *stages]:
        for engine in ("compiled", "reference"):
            if path.suffix == ".gcx" and engine == "reference":
                continue
            given = ("--engine", engine, *feeds(folder), "-o", folder / "out.npz")
            status, _, errors = run("run", path, *given)
            assert status == 0, (path.name, engine, errors)
            check(folder / "out.npz")


def test_rebuild_and_reference_of_a_compiled_file(folder, run):
    assert run("compile", folder / "big.gir", "-o", folder / "b.gcx", "--bind", "N=3")[0] == 0
    for option in ("--rebuild", "--check"):
        given = ("--feed", f"x={folder}/bigx.npy", option)
        status, _, errors = run("run", folder / "b.gcx", *given)
        assert status == 0, errors
    assert gc.parse(run("show", folder / "b.gcx")[1]).params[0].type.shape == (3, 40)


def test_compile_options_do_not_pass_unnoticed_on_a_compiled_file(folder, run):
    path = folder / "done.gcx"
    assert run("compile", folder / "m.gir", "-o", path)[0] == 0
    assert run("run", path, "--seed", "1", "--threads", "1")[0] == 0
    assert run("run", path, "--seed", "1", "--threads", "-1")[0] == 2
    status, _, errors = run("run", path, "--seed", "1", "--check-finite")
    assert status == 1
    assert "--check-finite has no effect" in errors
    assert run("run", path, "--seed", "1", "--check-finite", "--rebuild")[0] == 0


def test_a_compiled_file_of_another_format_can_be_rebuilt(folder, run):
    path = folder / "later.gcx"
    assert run("compile", folder / "m.gir", "-o", path)[0] == 0
    format = f'\\"format\\": {gcx_reader.FORMAT}'.encode()
    assert format in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(format, format[:-1] + b"0"))  # of two digits
    status, _, errors = run("run", path, *feeds(folder))
    assert status == 1
    assert "--rebuild" in errors
    assert run("run", path, *feeds(folder), "--rebuild")[0] == 0


def test_running_a_compiled_file_leaves_the_compiler_out(folder, run):
    assert run("compile", folder / "m.gir", "-o", folder / "alone.gcx")[0] == 0
    arguments = ["run", "alone.gcx", *feeds("."), "-o", "alone.npz"]
    code = (
        f"import os, sys; os.chdir({str(folder)!r})\n"
        f"from graphc.cli.commands import main; main({arguments!r})\n"
        "banned = ('numba', 'lark', 'llvmlite', 'graphc.frontend', 'graphc.passes', "
        "'graphc.codegen', 'graphc.ir', 'graphc.ops')\n"
        "print([m for m in sys.modules if m.startswith(banned)])\n"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"
    check(folder / "alone.npz")


def test_dump_folder(folder, run, monkeypatch):
    monkeypatch.setenv("GRAPHC_DUMP", str(folder / "dumped"))
    assert run("compile", folder / "big.gir", "-o", folder / "b.gcx", "--bind", "N=3")[0] == 0
    dumped = folder / "dumped"
    first = (dumped / "00-trace.gir").read_text().splitlines()
    assert first[0].startswith("# stage trace: ")
    assert "nodes" in first[0]
    assert first[1] == "# weights constants.safetensors"
    index = (dumped / "index.txt").read_text()
    assert len(index.splitlines()) <= 60
    assert all(word in index for word in ("trace", "fuse", "plan", "kernels", "arena"))
    suffixes = {path.suffix for path in (dumped / "kernels").iterdir()}
    assert suffixes == {".py", ".ll", ".s"}
    products = [name for name in index.split() if name.startswith("graphc_contract_")]
    assert all((dumped / "kernels" / f"{name}.ll").exists() for name in products)
    for path in dumped.glob("*.gir"):
        value = gc.load(path).graph
        assert gc.show(value) == gc.show(gc.parse(path.read_text()))
    monkeypatch.delenv("GRAPHC_DUMP")
    status, _, errors = run("run", dumped / "01-bind_sizes.gir", "--seed", "1", "--check")
    assert status == 0, errors
    of_three = ("--feed", f"x={folder}/bigx.npy", "--check")
    status, _, errors = run("run", dumped / "00-trace.gir", *of_three)  # its sizes are open
    assert status == 0, errors


def test_run_reports_json_and_draws_missing_feeds(folder, run):
    status, out, _ = run("run", folder / "m.gir", "--seed", "3", "--check", "--json")
    assert status == 0
    assert [r["name"] for r in json.loads(out)["results"]] == ["y", "total"]


def test_show(folder, run):
    text = run("show", folder / "m.gir")[1]
    assert gc.show(gc.parse(text)) == text
    assert "fused" in run("show", folder / "m.gir", "--after", "fuse")[1]
    assert "def " in run("show", folder / "m.gir", "--kernels")[1]
    assert json.loads(run("show", folder / "m.gir", "--json")[1])["name"] == "model"
    assert run("show", folder / "m.gir", "--after", "nothing")[0] == 1


def test_a_dump_replaces_nothing_but_a_dump(folder, run):
    mine = folder / "mine"
    (mine / "kernels").mkdir(parents=True)
    (mine / "index.txt").write_text("mine")
    status, _, errors = run("run", folder / "m.gir", "--seed", "1", "--dump", mine)
    assert status == 1
    assert "index.txt of its own" in errors
    (mine / "index.txt").unlink()
    (mine / "kernels" / "fast.py").write_text("mine")
    text = (folder / "m.gir").read_text().replace("@model", '@"/../../../escaped"')
    (folder / "odd.gir").write_text(text)
    before = set(folder.iterdir())
    for _ in range(2):
        status, _, errors = run("run", folder / "odd.gir", "--seed", "1", "--dump", mine)
        assert status == 0, errors
    assert (mine / "kernels" / "fast.py").read_text() == "mine"
    assert set(folder.iterdir()) == before
    assert any(path.name.startswith("03-") for path in mine.iterdir() if path.is_dir())


def test_diff(folder, run):
    assert run("diff", folder / "m.gir", folder / "m.gir")[:2] == (0, "")
    other = (folder / "m.gir").read_text().replace("tanh", "sinh")
    (folder / "other.gir").write_text(other)
    status, out, _ = run("diff", folder / "m.gir", folder / "other.gir")
    assert status == 3
    assert "0 removed, 0 added, 1 changed" in out
    record = json.loads(run("diff", folder / "m.gir", folder / "other.gir", "--json")[1])
    assert "sinh" in record["changed"][0]["right"]


def test_diff_shows_headers_whole(folder, run):
    (folder / "other.gir").write_text((folder / "m.gir").read_text().replace("@model", "@other"))
    out = run("diff", folder / "m.gir", folder / "other.gir")[1]
    assert "- graph @model(" in out
    assert "+ graph @other(" in out
    (folder / "fused.gir").write_text(run("show", folder / "m.gir", "--after", "fuse")[1])
    out = run("diff", folder / "m.gir", folder / "fused.gir")[1]
    assert "\n+ graph @model(" in out
    assert "\n+   graph @f(" in out


@pytest.mark.slow
def test_tables(folder, run):
    for arguments in (
        ("passes",),
        ("passes", "--ops"),
        ("devices",),
        ("cache", "ls"),
        ("audit", folder / "big.gir"),
    ):
        status, out, errors = run(*arguments)
        assert status == 0, errors
        assert out
        assert json.loads(run(*arguments, "--json")[1])
    total = json.loads(run("audit", folder / "big.gir", "--json")[1])["total"]
    assert (total["parameters"], total["parameter_bytes"]) == (2000, 16000)
    assert "nodes" not in total  # which `compile` counts, without those inside of loops


def test_an_audit_says_what_open_sizes_leave_out(tmp_path, run):
    model = gc.compile(lambda x: np.exp(x @ np.ones((3, 2), "f4")))
    model.save(tmp_path / "m.gir", gc.spec(("n", 3), "f32"))
    _, out, _ = run("audit", tmp_path / "m.gir")
    assert "open sizes are left out" in out
    _, out, _ = run("audit", tmp_path / "m.gir", "--bind", "n=4")
    assert "open sizes" not in out and " 0 flops" not in out


def test_an_audit_says_where_constants_without_names_are(tmp_path, run):
    """Those of two bodies have the same numbers, and a number is no place to look at."""
    w = np.ones((3, 3), "f4")
    model = gc.compile(lambda x: gc.fori(0, 3, lambda i, h: np.tanh(h @ w), x))
    model.save(tmp_path / "m.gir", gc.spec((2, 3), "f32"))
    _, out, _ = run("audit", tmp_path / "m.gir")
    assert re.search(r"%\d+ \(\S*test_cli.py:\d+\)", out)
    assert "9 parameters in 1 constant and 0 variables" in out


def test_every_stage_is_told_in_one_whole_sentence(run):
    stages = json.loads(run("passes", "--json")[1])
    told = {stage["name"]: stage["summary"] for stage in stages}
    assert all(text[0].isupper() and text.endswith(".") for text in told.values()), told
    assert not [text for text in told.values() if "\n" in text or ". " in text]
    assert told["constrain"] == "The graph with the constraints of `config`."
    assert told["remat"].endswith(
        "or the nearest that was found; the same graph where there is no limit."
    )


def test_bench(folder, run):
    status, out, errors = run("bench", folder / "m.gir", "--seconds", "0.05", "--json")
    assert status == 0, errors
    assert json.loads(out)["compiled"]["calls"] > 0


def test_open_sizes_are_timed_at_a_usual_size_that_is_told(tmp_path, run):
    gc.compile(lambda x: np.exp(x)).save(tmp_path / "m.gir", gc.spec(("batch", 3), "f32"))
    status, out, errors = run("bench", tmp_path / "m.gir", "--seconds", "0.05")
    assert status == 0, errors
    assert "batch=32" in out
    _, out, _ = run("bench", tmp_path / "m.gir", "--seconds", "0.05", "--bind", "batch=4")
    assert "batch" not in out


@pytest.mark.parametrize("command", ["audit", "bench", "why", "convert"])
def test_a_size_that_is_none_of_the_model(tmp_path, run, command):
    gc.compile(lambda x: np.exp(x)).save(tmp_path / "m.gir", gc.spec(("batch", 3), "f32"))
    target = ("-o", tmp_path / "o.gir") if command == "convert" else ()
    status, _, errors = run(command, tmp_path / "m.gir", "--bind", "btch=4", *target)
    assert status == 1
    assert "no dimension symbol 'btch'" in errors and "did you mean batch?" in errors


def test_converting_names_the_weights_file(tmp_path, run):
    w = np.ones((40, 40), "f4")
    gc.compile(lambda x: x @ w).save(tmp_path / "m.gir", np.ones((2, 40), "f4"))
    target = tmp_path / "other.gir"
    _, out, _ = run("convert", tmp_path / "m.gir", "-o", target)
    weights = target.with_suffix(".safetensors")
    assert f"{weights}: {weights.stat().st_size:,} bytes" in out
    record = json.loads(run("convert", tmp_path / "m.gir", "-o", target, "--json")[1])
    assert record["weights"] == str(weights)


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph @x(%0 x: f32[2]) {\n  %1 = nosuch(%0) : f32[2]\n  return %1\n}\n", "nosuch"),
        ("graph @x(%0 x: f32[2]) {\n  %1 = tanh(%7) : f32[2]\n  return %1\n}\n", "%7"),
        ("graph @x(%0 x: f32[2]) {\n  %1 = tanh(%0) : f32[3]\n  return %1\n}\n", "f32"),
        ("graph @x(%0 x: f32[2]) {\n  %1 = tanh(%0 : f32[2]\n  return %1\n}\n", "line 2"),
        ("gir 99\ngraph @x() {\n  return\n}\n", "version"),
        ("", "line 1"),
        (
            "graph @x(%0 x: f32[2]) {\n"
            "  %1 = const() {value=f32[900](sha256:00112233445566778899aabbccddeeff)} : f32[900]\n"
            "  return %1\n}\n",
            "no weights file",
        ),
        (
            "# weights ../secret.safetensors\ngraph @x(%0 x: f32[2]) {\n  return %0\n}\n",
            "no plain file name",
        ),
        (
            f"# weights {'w' * 5000}\ngraph @x(%0 x: f32[2]) {{\n  return %0\n}}\n",
            "plain file name",
        ),
        ("# weights .\ngraph @x(%0 x: f32[2]) {\n  return %0\n}\n", "plain file name"),
        ("# weights pipe\ngraph @x(%0 x: f32[2]) {\n  return %0\n}\n", "regular file"),
        ("graph @x(%0 x: (f32[2], f32[2])) {\n  return %0\n}\n", "no tensor"),
        ("graph @x(%0 x: f32[99999999,99999999]) {\n  return %0\n}\n", "limit"),
    ],
)
def test_bad_graphs_are_one_clear_message(tmp_path, run, text, message):
    (tmp_path / "bad.gir").write_text(text)
    os.mkfifo(tmp_path / "pipe")
    status, out, errors = run("compile", tmp_path / "bad.gir", "-o", tmp_path / "bad.gcx")
    (tmp_path / "pipe").unlink()
    assert status == 1
    assert errors.startswith("error: ")
    assert message in errors
    assert "Traceback" not in out + errors
    assert len(errors.splitlines()) <= 13
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gir"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-100], "outside the file"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "other data"),
        (lambda data: b"\xff" * 8 + data[8:], "header"),
        (lambda data: data[:8] + b"x" + data[9:], "JSON"),
        (lambda data: b"", "header"),
        (lambda data: data.replace(b'"F64"', b'"F99"'), "not understood"),
        (lambda data: data.replace(b"[40,50]", b"[40,51]"), "wrong size"),
    ],
)
def test_damaged_weights(folder, tmp_path, run, change, message):
    (tmp_path / "big.gir").write_text((folder / "big.gir").read_text())
    data = (folder / "big.safetensors").read_bytes()
    (tmp_path / "big.safetensors").write_bytes(change(data))
    status, _, errors = run("run", tmp_path / "big.gir", "--feed", f"x={folder}/bigx.npy")
    assert status == 1
    assert message in errors


def test_weights_outside_the_folder(folder, tmp_path, run):
    (tmp_path / "big.gir").write_text((folder / "big.gir").read_text())
    (tmp_path / "big.safetensors").symlink_to(folder / "big.safetensors")
    status, _, errors = run("audit", tmp_path / "big.gir")
    assert status == 0  # counting needs no data
    status, _, errors = run("run", tmp_path / "big.gir", "--seed", "1")
    assert status == 1
    assert "outside the folder" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--feed", "y=x.npy"), "no parameter 'y'"),
        (("--feed", "x=x.npy"), "no feed for parameter"),
        (("--feed", "x=x.npy"), "or --seed 0 for random arrays"),
        (("--feed", "x=missing.npy"), "cannot read"),
        (("--feed", "x=m.gir"), "not a .npy"),
        (("--feed", "x=x.npy", "--feed", "x=x.npy"), "given twice"),
        (("--feed", "x.npy"), "no parameter name"),
        (("--feed", "x=bigx.npy", "--seed", "1"), "f64"),
        (("--feed", "x=w.npz", "--seed", "1"), "shape"),
        (("--feed", "pickled.npz"), "plain arrays"),
        (("--feed", "x=pickled.npz"), "plain arrays"),
        (("--feed", "torn.npz"), "plain arrays"),
        (("--seed", "1", "-o", "no/such/folder/out.npz"), "cannot write"),
        (("--seed", "1", "-o", "out.txt"), ".npz"),
    ],
)
def test_bad_feeds(folder, run, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    status, out, errors = run("run", "m.gir", *arguments)
    assert status == 1, out
    assert message in errors
    assert "Traceback" not in errors


def test_what_is_no_graph_and_no_key_is_told_so(folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "model.py").write_text("import numpy as np\n")
    status, _, errors = run("run", "model.py")
    assert status == 1
    assert "this is no graph: it begins with 'import numpy as np'" in errors
    assert "is a folder" in run("audit", ".")[2]
    errors = run("compile", "m.gir", "-o", "s.gcx", "--sign", "KEY")[2]
    assert "there is no key KEY" in errors
    assert "head -c 32 /dev/urandom > KEY makes one" in errors


def test_a_check_that_passes_says_so(folder, run):
    status, out, _ = run("run", folder / "m.gir", "--seed", "1", "--check")
    assert status == 0
    assert "the interpreter has the same results" in out


def test_the_size_of_a_page_is_that_of_its_file(folder, run, tmp_path):
    out = run("view", folder / "m.gir", "-o", tmp_path / "page.html")[1]
    assert f"{(tmp_path / 'page.html').stat().st_size:,} bytes" in out


def test_usage_errors(folder, run):
    assert run("no-such-command")[0] == 2
    assert run("compile", folder / "m.gir")[0] == 2
    assert run("run", folder / "m.gir", "--seed", "-1")[0] == 2
    text = (folder / "m.gir").read_text()
    status, _, errors = run("compile", folder / "m.gir", "-o", folder / "m.gir")
    assert (status, (folder / "m.gir").read_text()) == (1, text)
    assert ".gcx" in errors
    assert run("run", folder / "nothing.gir")[0] == 1
    assert run("compile", folder / "big.gir", "-o", folder / "b.gcx", "--bind", "M=2")[0] == 1


def test_json_errors(folder, run):
    status, out, _ = run("run", folder / "nothing.gir", "--json")
    assert status == 1
    assert "nothing.gir" in json.loads(out)["error"]


def test_names_with_code_in_them(tmp_path, run):
    name = "x\"; import os; os.abort()\n'"
    graph = gc.compile(lambda d: np.tanh(d[name]) * 2).graph({name: X})
    from graphc.frontend.files.gir_files import save

    save(tmp_path / "odd.gir", graph)
    np.save(tmp_path / "x.npy", X)
    loaded = gc.load(tmp_path / "odd.gir")
    np.testing.assert_allclose(loaded(X), np.tanh(X) * 2, rtol=1e-5)
    assert run("run", tmp_path / "odd.gir", "--seed", "1", "--check")[0] == 0


def test_mismatch_exits_with_3(folder, run, monkeypatch):
    from graphc.ops.reference import interpreter as interpret

    wrong = lambda graph, arrays, **options: [np.asarray(r) + 1 for r in EXPECTED.values()]
    monkeypatch.setattr(interpret, "interpret", wrong)
    status, _, errors = run("run", folder / "m.gir", *feeds(folder), "--check")
    assert status == 3
    assert "largest difference" in errors


TWO = ("--devices", "cpu:0,cpu:1", "--place", "h=cpu:1", "--check")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A saved model whose first layer can run on another device."""

    def layers(x, w):
        h = gc.name(np.tanh(x @ w), "h")
        return {"y": np.abs(h * 3), "z": h @ w.T}

    path = tmp_path_factory.mktemp("wide") / "wide.gir"
    gc.compile(layers).save(path, gc.spec((300, 200), "f32"), gc.spec((200, 64), "f32"))
    return path


@pytest.mark.parametrize("mode", ["truncate", "nearest"])
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_check_compares_with_short_transfers_and_tells_what_they_cost(wide, run, mode, engine):
    options = (*TWO, "--compress-mode", mode, "--engine", engine, "--seed", "1")
    status, out, errors = run("run", wide, *options, "--json")
    assert status == 0, errors
    found = {row["name"]: row for row in json.loads(out)["compression"]}
    worst = 2.0**-7 if mode == "truncate" else 2.0**-8
    assert 0 < found["y"]["relative_error"] <= worst and 0 < found["z"]["relative_error"] < worst
    assert found["z"]["bound"] is None  # sums
    status, out, _ = run("run", wide, *options)
    assert status == 0 and "relative error of lost precision" in out
    assert "compression" not in json.loads(run("run", wide, *TWO, "--seed", "1", "--json")[1])


def test_a_check_tells_what_narrow_products_cost(tmp_path, run):
    path = tmp_path / "layers.gir"
    x, w = gc.spec((128, 200), "f32"), gc.spec((200, 128), "f32")
    gc.compile(lambda x, w: np.tanh(x @ w) @ w.T).save(path, x, w)
    options = ("--precision", "bf16", "--seed", "1", "--json")
    status, out, errors = run("run", path, *options, "--check")
    assert status == 0, errors
    rows = json.loads(out).get("compression", [])  # none where the CPU multiplies f32 alone
    assert all(0 < row["relative_error"] < 0.02 and row["bound"] is None for row in rows)
    assert run("compile", path, "-o", tmp_path / "l.gcx", "--precision", "bf16")[0] == 0
    status, out, _ = run("run", tmp_path / "l.gcx", "--seed", "1", "--json")
    assert status == 0 and json.loads(out)["results"]
    status, out, _ = run("run", tmp_path / "l.gcx", "--seed", "1", "--json", "--check")
    assert json.loads(out).get("compression", []) == rows  # the file knows its precision
    more = ("--precision", "f32", "--seed", "1", "--json", "--check")
    assert "compression" not in json.loads(run("run", tmp_path / "l.gcx", *more)[1])


@pytest.mark.parametrize("told", ['{"precision": []}', '{"dump": "/"}', "[", '{"compress": 3}'])
def test_options_in_a_file_are_options(tmp_path, run, told):
    text = f"# options {told}\n"
    with pytest.raises(gc.GraphError):
        gc.config.Config.create(**options_of("m.gcx", text))


@pytest.mark.parametrize("rows", [0, 7])
def test_a_check_of_narrow_products_takes_open_sizes(tmp_path, run, rows):
    path, fed = tmp_path / "open.gir", tmp_path / "x.npy"
    w = np.ones((512, 512), np.float32) / 300
    gc.compile(lambda x: np.tanh(x @ w) @ w).save(path, gc.spec(("n", 512), "f32"))
    np.save(fed, np.ones((rows, 512), np.float32))
    options = ("--feed", f"x={fed}", "--precision", "bf16", "--check", "--json")
    status, out, errors = run("run", path, *options)
    assert status == 0 and json.loads(out)["results"][0]["shape"] == [rows, 512], errors


@pytest.mark.parametrize("mode", ["truncate", "nearest"])
def test_a_check_follows_short_messages_of_a_loop(tmp_path, run, mode):
    def f(x, w):
        def body(i, c):
            with gc.device("cpu:1"):
                c = np.tanh(c @ w)
            with gc.device("cpu:0"):
                return c * 0.5 + 0.1

        return gc.fori(0, 3, body, x)

    path = tmp_path / "loop.gir"
    gc.compile(f).save(path, gc.spec((300, 200), "f32"), gc.spec((200, 200), "f32"))
    options = ("--devices", "cpu:0,cpu:1", "--compress-mode", mode, "--check", "--seed", "1")
    status, out, errors = run("run", path, *options, "--trace", tmp_path / "t.json", "--json")
    assert status == 0, errors
    assert json.loads(out)["compression"][0]["relative_error"] > 0


def test_a_check_bounds_short_transfers_that_no_sum_follows(tmp_path, run):
    path = tmp_path / "plain.gir"
    x = gc.spec((64, 64), "f32")
    gc.compile(lambda x: gc.name(np.tanh(x), "h") * 3).save(path, x)
    status, out, _ = run("run", path, *TWO, "--compress", "--seed", "1", "--json")
    (row,) = json.loads(out)["compression"]
    assert status == 0 and 0 < row["relative_error"] <= row["bound"] == 2.0**-7


def test_a_wrong_cut_is_a_mismatch(wide, run, monkeypatch):
    from graphc.cli import check as cli_check

    interpreted = cli_check.Reference._interpret

    def other_mode(self, graph, arrays, **mail):
        text = gc.show(graph).replace('mode="nearest"', 'mode="truncate"')
        return interpreted(self, gc.parse(text), arrays, **mail)

    monkeypatch.setattr(cli_check.Reference, "_interpret", other_mode)
    options = ("--compress-mode", "nearest", "--seed", "1")
    status, _, errors = run("run", wide, *TWO, *options)
    assert status == 3 and "message c1: largest difference" in errors


def test_traced_runs_keep_what_kernels_cost(wide, run, tmp_path, monkeypatch):
    from graphc.passes.placement.measured import load

    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    command = ("run", wide, "--seed", "1", "--trace", tmp_path / "t.json")
    for count in (1, 2):
        status, out, errors = run(*command, "--json")
        assert status == 0, errors
        kept = json.loads(out)["measured"]
        runs = load(tmp_path / "cache" / "costs.json").runs
        assert kept == {"kernels": len(runs), "file": str(tmp_path / "cache" / "costs.json")}
        assert {r["cpu"].count for r in runs.values()} == {count}
    assert any("matmul(f32[300,200],f32[200,64]) -> f32[300,64]" in key for key in runs)
    assert "measured costs of" in run(*command)[1]
    assert run("show", wide, "--after", "place", "--costs", "measured")[0] == 0


@pytest.fixture(scope="module")
def plan():
    """The planned text of two matrix products and two sums."""
    model = gc.compile(lambda x: (np.tanh(x @ x.T).sum(axis=0) @ x, x.sum(axis=0)))
    return gc.show(model.lower(gc.spec((8, 8), "f32")))


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"cpu:0\[\d+:256\]", "cpu:0[0:8]"),
        (r"cpu:0\[\d+:256\]", "cpu:0[900000000000000:256]"),
        (r"\[r1\+0:", "[r1+4096:"),
        (r"\[r1\+0:", "[p0+0:"),
        (r"\[r1\+0:", "[c+0:"),
        (r"\[r1\+0:", "[r7+0:"),
        (r"(reshape.*)\[r0\+0:", r"\1[p0+0:"),
    ],
)
def test_what_a_file_says_about_memory_is_planned_anew(tmp_path, run, plan, pattern, replacement):
    changed = re.sub(pattern, replacement, plan, count=1)
    assert changed != plan
    for name, text in (("plan.gir", plan), ("changed.gir", changed)):
        (tmp_path / name).write_text(f"# stage plan: as it was\n{text}")
        assert run("run", tmp_path / name, "--seed", "1", "-o", tmp_path / f"{name}.npz")[0] == 0
    with np.load(tmp_path / "plan.gir.npz") as want, np.load(tmp_path / "changed.gir.npz") as made:
        for name in want:
            np.testing.assert_array_equal(made[name], want[name])


def test_a_kernel_has_its_workspace_whatever_a_file_says(tmp_path, run, plan):
    size = re.search(r"u8\[(\d+)\]", plan)[1]
    changed = plan.replace(f"u8[{size}]", "u8[64]").replace(f"nbytes={size}", "nbytes=64")
    changed = re.sub(rf"\[(\d+):{size}\]", r"[\1:64]", changed)
    (tmp_path / "11-plan.gir").write_text(f"# stage plan: changed\n{changed}")
    for threads in "12":
        stage = ("run", tmp_path / "11-plan.gir", "--seed", "1", "--threads", threads)
        assert run(*stage, "--check")[0] == 0


# ------------------------------------------------------------------------------------ loaded graphs


def test_symbolic_graphs_are_compiled_once_for_all_sizes(folder):
    loaded = gc.load(folder / "big.gir")
    for rows in (3, 5, 3):
        assert loaded(np.ones((rows, 40))).shape == (rows, 50)
    assert not loaded._built and len(loaded._open.made) == 1


def test_loaded_graphs_inside_a_trace_become_calls(folder):
    loaded = gc.load(folder / "m.gir")

    def outer(x, w):
        return loaded(x, w, 2.0)["y"] + loaded(x=x, w=w, scale=2.0)["y"]

    compiled = gc.compile(outer)
    assert [n.op.name for n in compiled.graph(X, W).nodes].count("call") == 2
    np.testing.assert_allclose(compiled(X, W), EXPECTED["y"] * 2, rtol=1e-5, atol=1e-5)


def test_saved_twice_is_the_same(folder, tmp_path):
    gc.load(folder / "big.gir").save(tmp_path / "big.gir")
    assert (tmp_path / "big.gir").read_text() == (folder / "big.gir").read_text()
    mine, theirs = (p / "big.safetensors" for p in (folder, tmp_path))
    assert mine.read_bytes() == theirs.read_bytes()


def test_a_compiled_file_alone_says_what_else_a_check_reads(folder, run, tmp_path):
    assert run("compile", folder / "big.gir", "-o", tmp_path / "big.gcx")[0] == 0
    alone = ("run", tmp_path / "big.gcx", "--seed", 0)
    assert run(*alone)[0] == 0
    for option in ("--check", "--rebuild"):
        status, _, error = run(*alone, option)
        assert status == 1 and "big.safetensors, which is not beside it" in error


def test_weights_files_are_plain_safetensors(folder):
    from safetensors.numpy import load_file

    (found,) = load_file(folder / "big.safetensors").values()
    assert found.shape == (40, 50)


def test_endless_files_and_feeds_are_refused(run, tmp_path):
    (tmp_path / "endless.gir").symlink_to("/dev/zero")
    status, _, error = run("show", tmp_path / "endless.gir")
    assert (status, "no ordinary file" in error) == (1, True)
    text = "gir 1\ngraph @g(%0 x: f32[99999999999]) {\n  return %0\n}\n"
    (tmp_path / "huge.gir").write_text(text)
    status, _, error = run("run", tmp_path / "huge.gir", "--seed", 1, "-o", tmp_path / "o.npz")
    assert status == 1
    assert "Traceback" not in error
    assert not (tmp_path / "o.npz").exists()


def test_arrays_may_have_any_name(tmp_path, run):
    """np.savez takes none that is called "file"."""
    text = "gir 1\ngraph @f(%0 file: f32[2]) {\n  %1 = exp(%0) : f32[2]\n  return file: %1\n}\n"
    (tmp_path / "m.gir").write_text(text)
    gc.convert(gc.parse(text), tmp_path / "w.npz")
    model = ("run", tmp_path / "m.gir", "-o", tmp_path / "out.npz")
    assert run(*model, "--seed", "0")[0] == 0
    assert run(*model, "--feed", tmp_path / "out.npz")[0] == 0
    assert list(np.load(tmp_path / "out.npz")) == ["file"]


def test_the_command_fills_once(tmp_path, monkeypatch, run):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    first, second = (json.loads(run("cache", "fill", "--dtype", "i16", "--json")[1]) for _ in "12")
    assert first["compiled"] > 10 and first["cached"] == 0
    assert second["compiled"] == 0 and second["cached"] == first["compiled"]
    x = np.ones((20, 30), np.int16)
    compiled = gc.compile(lambda x: x @ x.T)
    np.testing.assert_array_equal(compiled(x), x @ x.T)
    assert compiled._variants.newest.kernels.compiled == 0
