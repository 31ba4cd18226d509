"""What a traced run writes down, and the files it makes of that."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from device_programs import TWO, X, made, ping_pong, there_and_back

import graphc as gc
from graphc.cli.commands import main
from graphc.errors import GraphError, LimitError
from graphc.runtime.observe import profile as profiling
from graphc.runtime.observe.profile import profile
from graphc.runtime.observe.trace import Trace, trace
from graphc.viewer.traces import write_trace


def traced(function: Any, **options: Any) -> tuple[list[np.ndarray], Trace]:
    return trace(made(function, X), [X], **options)


def steps(found: Trace, device: int) -> list[tuple[str, str]]:
    """What a device did; a send that waited for its channel, or for its core, is one step."""
    events = [(e.kind, e.name) for e in found.events if e.device == device]
    later = [*events[1:], ("", "")]
    return [e for e, after in zip(events, later) if (e[0], *after) != ("wait", "send", e[1])]


def test_every_row_of_every_device_is_there() -> None:
    results, found = traced(there_and_back)
    np.testing.assert_array_equal(results[0], made(there_and_back, X).run([X])[0])
    assert found.devices == ("cpu:0", "cpu:1") and not found.dropped
    kinds = [[kind for kind, _ in steps(found, d)] for d in (0, 1)]
    assert kinds[0] == ["kernel", "send", "wait", "transfer", "kernel"]
    assert kinds[1] == ["wait", "transfer", "kernel", "send"]
    for event in found.events:
        assert 0 <= event.start <= event.end <= found.seconds
        assert event.origin is not None and event.origin.file.endswith("device_programs.py")


def test_a_message_arrives_after_it_is_sent() -> None:
    _, found = traced(ping_pong)
    sends = [e for e in found.events if e.kind == "send"]
    takes = [e for e in found.events if e.kind == "transfer"]
    assert len(sends) == len(takes) >= 400
    for name in {e.name for e in sends}:
        pairs = zip([s for s in sends if s.name == name], [t for t in takes if t.name == name])
        assert all(s.start <= s.end <= t.start and s.peer == t.device for s, t in pairs)


def test_times_add_up() -> None:
    _, found = traced(there_and_back)
    totals = found.totals(1)
    assert set(totals) == {"kernel", "send", "transfer", "wait for cpu:0"}
    events = [e for e in found.events if e.device == 1]
    whole = max(e.end for e in events) - min(e.start for e in events)
    assert sum(totals.values()) == pytest.approx(sum(e.end - e.start for e in events))
    assert sum(totals.values()) <= 1.001 * whole


def test_a_log_that_is_full() -> None:
    _, found = traced(ping_pong, room=50)
    assert found.dropped > 500 and all(
        0 < sum(e.device == d for e in found.events) < 50 for d in (0, 1)
    )


def test_runs_are_not_traced_afterwards() -> None:
    executable = made(there_and_back, X)
    trace(executable, [X])
    assert all(frame.words[12] == 0 for frame in executable._frames[0].frames)
    executable.run([X])


def test_a_profile_counts_the_rows_of_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    times = profile(made(ping_pong, X), [X])
    for kind in ("wait", "transfer"):
        assert 200 in [t.count for t in times if (t.device, t.kernel) == ("cpu:1", kind)]
    assert any(t.device == "cpu:1" and t.kernel.startswith("k") and t.count == 200 for t in times)
    monkeypatch.setattr(profiling, "MOST_ROWS", 100)
    with pytest.raises(LimitError, match="more than 100 rows"):
        profile(made(ping_pong, X), [X])


def test_the_file_for_other_viewers(tmp_path: Any) -> None:
    _, found = traced(there_and_back)
    write_trace(found, tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in written if e["ph"] == "M"]
    assert names == TWO
    complete = [e for e in written if e["ph"] == "X"]
    assert len(complete) == len(found.events)
    assert {"wait on c0 for cpu:0", "send c0 to cpu:1", "c0 from cpu:0"} <= {
        e["name"] for e in complete
    }
    assert all(re.search(r"device_programs\.py:\d+$", e["args"]["line"]) for e in complete)
    arrows = {k: [e["id"] for e in written if e["ph"] == k] for k in "sf"}
    assert sorted(arrows["s"]) == sorted(arrows["f"]) and len(arrows["s"]) == 2
    with pytest.raises(GraphError, match=r"neither a \.json nor a \.html"):
        write_trace(found, tmp_path / "t.txt")


def test_the_command_line_traces_graphs_and_compiled_files(tmp_path: Any) -> None:
    gc.compile(lambda x: np.tanh(x) @ x).save(tmp_path / "m.gir", X)
    assert code(["compile", f"{tmp_path}/m.gir", "-o", f"{tmp_path}/m.gcx"]) == 0
    names = {}
    for model in ("m.gir", "m.gcx"):
        path = tmp_path / f"{model}.json"
        assert code(["run", f"{tmp_path}/{model}", "--seed", "1", "--trace", str(path)]) == 0
        written = json.loads(path.read_text())["traceEvents"]
        names[model] = [e["name"] for e in written if e["ph"] == "X"]
    assert len(names["m.gir"]) == len(names["m.gcx"]) >= 2
    assert any(re.fullmatch(r"%\d+: .*tanh.* -> f32\[32,32\]", name) for name in names["m.gir"])
    refused = ["run", f"{tmp_path}/m.gir", "--engine", "reference", "--trace", "t.json"]
    assert code(refused) == 1


def test_the_report_sets_a_simulation_beside_the_run(tmp_path: Any, capsys: Any) -> None:
    gc.compile(there_and_back, devices=TWO).save(tmp_path / "m.gir", X)
    command = ["run", f"{tmp_path}/m.gir", "--seed", "1", "--devices", "cpu:0,cpu:1"]
    assert code([*command, "--trace", f"{tmp_path}/t.html", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    rows = written["trace"]
    kinds = [(row["device"], row["kind"]) for row in rows]
    assert kinds == [(d, k) for d in TWO for k in ("measured", "simulated")]
    assert all(row["busy_us"] > 0 and row["end_us"] >= row["busy_us"] for row in rows)
    assert rows[0]["waits_for"].startswith("cpu:1") and rows[1]["waits_for"].startswith("cpu:1")
    blamed = written["blamed"]
    assert {row["device"] for row in blamed} == set(TWO) and len(blamed) == 5
    off = [abs(row["measured_us"] - row["simulated_us"]) for row in blamed]
    assert all(near <= far + 0.2 for far, near in pairwise(off))  # each is rounded to 0.1
    kernels = [row for row in blamed if re.fullmatch(r"%\d+: .* -> f32\[32,32\]", row["what"])]
    assert len(kernels) == 3 and all(row["simulated_us"] > 0 for row in kernels)
    assert all(re.search(r"device_programs\.py:\d+$", row["line"]) for row in kernels)
    assert sum("recv" in row["what"] for row in blamed) == 2


def code(arguments: list[str]) -> Any:
    """The exit code of a command."""
    try:
        main(arguments)
    except SystemExit as end:
        return end.code or 0
    return 0


def test_a_device_with_nothing_to_do_comes_last_in_the_report(tmp_path: Any, capsys: Any) -> None:
    gc.compile(lambda x: x + 1).save(tmp_path / "m.gir", X)
    command = ["run", f"{tmp_path}/m.gir", "--seed", "1", "--devices", "cpu:0,cpu:1"]
    assert code([*command, "--trace", f"{tmp_path}/t.json", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["trace"]
    assert [row["device"] for row in rows] == ["cpu:0", "cpu:0", "cpu:1"]
