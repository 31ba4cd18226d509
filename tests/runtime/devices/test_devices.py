"""Devices: names, the registry of types, constraints from the command line, calibration."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.cli.commands import main
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.place import Device, Spec, parse_device, parse_place, parse_spec
from graphc.passes.placement import measured
from graphc.passes.placement.measured import Measured
from graphc.runtime.devices import multi_device as cluster
from graphc.runtime.devices.registry import (
    Link,
    Rates,
    check_device,
    kind_of,
    kinds,
    register_device,
)

NAMES = st.from_regex(r"[a-z]\w{0,5}", fullmatch=True).filter(lambda n: n.isascii())
NUMBERS = st.integers(0, 99)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.gir"

    @gc.compile
    def model(x):
        h = gc.name(np.tanh(x), "h")
        return h @ h

    model.save(path, gc.spec((32, 32), "f32"))
    return path


@pytest.fixture
def invoke(capsys):
    """Run a command: exit status and what it printed."""

    def call(*words: object) -> tuple[int, str]:
        status = 0
        try:
            main([str(word) for word in words])
        except SystemExit as request:
            status = int(request.code or 0)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return call


# ------------------------------------------------------------------------------------ names


@pytest.mark.slow
@given(NAMES, st.none() | NUMBERS, NAMES, NUMBERS)
def test_full_names_are_read_as_they_print(job, task, kind, index) -> None:
    device = Device(job, task, kind, index)
    assert parse_device(str(device)) == parse_place(str(device)) == device
    assert parse_spec(str(device)).matches(device)


@given(st.none() | NAMES, st.none() | NUMBERS, st.none() | NAMES, NUMBERS)
def test_partial_names_match_what_agrees_with_them(job, task, kind, index) -> None:
    spec = Spec(job, task, kind, index if kind else None)
    if str(spec):
        assert parse_spec(str(spec)) == spec
    full = Device(job or "any", 7 if task is None else task, kind or "any", index)
    assert spec.matches(full)
    assert not spec.matches(Device("other0", 100, "other0", 100)) or spec == Spec()


def test_short_names() -> None:
    assert str(parse_device("cpu:1")) == "/job:localhost/device:cpu:1"
    assert parse_spec("gpu").matches(parse_device("/job:worker/task:3/device:gpu:2"))
    assert not parse_spec("/job:worker/task:17").matches(parse_device("cpu:0"))
    for bad in ("", "cpu 1", "/job:", "cpu:x", "/task:-1"):
        with pytest.raises(GraphError, match="is not a device name"):
            parse_spec(bad)


# ------------------------------------------------------------------------------------ types


def test_device_types_are_registered_from_outside() -> None:
    made = register_device("tpu", Rates(1e14, 1e12, 1e-6), Link(1e-5, 1e10))
    assert kind_of("tpu") is made and made in kinds()
    faster = register_device("tpu", Rates(2e14, 1e12, 1e-6), Link(1e-5, 1e10), runs_on="null")
    assert kind_of("tpu") is faster
    assert check_device("tpu", 63) is faster


@pytest.mark.parametrize(
    ("name", "rates", "link", "runs_on", "message"),
    [
        ("cpu", Rates(1, 1, 1), Link(1, 1), "cpu", "built in"),
        ("no name", Rates(1, 1, 1), Link(1, 1), "cpu", "cannot be a type"),
        ("task", Rates(1, 1, 1), Link(1, 1), "cpu", "cannot be a type"),
        ("slow", Rates(0, 1, 1), Link(1, 1), "cpu", "positive"),
        ("slow", Rates(1, 1, 1), Link(-1, 1), "cpu", "positive"),
        ("slow", Rates(1, math.nan, 1), Link(1, 1), "cpu", "positive"),
        ("slow", Rates(1, 1, 1), Link(1, 1), "gpu", "cpu or null"),
    ],
)
def test_what_cannot_be_a_device_type(name, rates, link, runs_on, message) -> None:
    with pytest.raises(GraphError, match=message):
        register_device(name, rates, link, runs_on)


def test_unknown_types_and_numbers_are_errors() -> None:
    with pytest.raises(GraphError, match="no device of type 'abacus'"):
        kind_of("abacus")
    with pytest.raises(GraphError, match="no device cpu:64"):
        check_device("cpu", 64)


def test_the_way_between_two_devices_is_that_of_the_slower() -> None:
    joined = Link(1e-6, 1e9).joined(Link(5e-6, 1e10))
    assert joined == Link(5e-6, 1e9)
    assert joined.seconds(1e9) == pytest.approx(1.000005)


# ------------------------------------------------------------------------------------ commands


def test_constraints_on_the_command_line(saved, invoke) -> None:
    words = ("show", saved, "--after", "place", "--devices", "cpu:0,cpu:1")
    first = "/job:localhost/device:cpu:0"
    status, text = invoke(*words, "--place", "h=cpu:1", "--place", f"%2={first}")
    tanh, product = (line for line in text.split("\n") if " = " in line and "name" not in line)
    assert status == 0 and "%1 = tanh" in tanh and "device:cpu:1" in tanh
    assert "%2 = matmul" in product and "device:cpu:0" in product
    assert invoke(*words, "--place", "q=cpu:1")[0] == 1
    status, text = invoke(*words, "--place", "h=gpu")
    assert status == 1 and "must run on /device:gpu" in text
    assert invoke(*words, "--place", "h=gpu", "--soft-placement")[0] == 0


@pytest.mark.slow
def test_calibration_is_stored_and_used(saved, invoke) -> None:
    status, text = invoke("devices", "--calibrate", "--model", saved, "--json")
    record = json.loads(text)
    assert status == 0 and record["flops_per_second"] > record["bytes_per_second"] > 1e8
    assert 0 < record["launch_us"] < 100 and 0 < record["latency_us"] < 1000
    assert record["kernels"] >= 2
    stored = json.loads((saved.parent / "cache" / "costs.json").read_text())
    assert stored["devices"]["cpu"]["flops"] == record["flops_per_second"]
    assert "tanh(f32[32,32]) -> f32[32,32]" in stored["seconds"]
    words = ("show", saved, "--after", "place", "--devices", "cpu:0,cpu:1")
    assert invoke(*words, "--costs", "measured")[0] == 0
    status, text = invoke(*words, "--costs", saved)
    assert status == 1 and "cannot read measured costs" in text
    assert invoke("devices", "--model", saved)[0] == 2


def test_files_know_the_devices_that_they_were_compiled_for(tmp_path, invoke) -> None:
    def f(x):
        with gc.device("cpu:1"):
            y = np.tanh(x @ x)
        return gc.fori(0, 2, lambda i, c: there(np.sin(c)) * 2, y)

    def there(y):
        with gc.device("cpu:2"):
            return y + 1

    x = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    run = gc.compile(f, devices=["cpu:0", "cpu:1", "cpu:2"], dump=tmp_path / "dump")
    gc.save(tmp_path / "m.gir", run.graph(x))
    expected = run(x)
    np.save(tmp_path / "x.npy", x)
    feed = ("--feed", f"x={tmp_path / 'x.npy'}")
    (stage,) = (tmp_path / "dump").glob("*-place.gir")
    np.testing.assert_array_equal(gc.load(stage)(x), expected)
    made = str(tmp_path / "m.gcx")
    words = ("compile", str(tmp_path / "m.gir"), "--devices", "cpu:0,cpu:1,cpu:2", "-o", made)
    for command in (
        words,
        ("run", str(stage), *feed),
        ("run", made, *feed, "--check"),
        ("run", made, *feed, "--rebuild"),
        ("bench", made, "--seconds", "0.01"),
    ):
        status, text = invoke(*command)
        assert status == 0, text


# ------------------------------------------------------------------------------------ bad names


@pytest.mark.parametrize("name", ["foo", "cpu", "", "cpu:64", "CPU:0", "none:0", 3, None, "cpu:-1"])
def test_what_is_no_device_is_not_taken_out_of_service(name) -> None:
    for change in (cluster.disconnect, cluster.reconnect):
        with pytest.raises(GraphError, match=r"no device|name of a device"):
            change(name)


def test_a_device_has_one_name_out_of_service() -> None:
    def f(x):
        with gc.device("cpu:1"):
            return np.tanh(x)

    run = gc.compile(f, devices=["cpu:0", "cpu:1"])
    x = np.ones(3, np.float32)
    cluster.disconnect("/job:localhost/device:cpu:1")
    try:
        with pytest.raises(GraphError, match="device cpu:1 is gone"):
            run(x)
    finally:
        cluster.reconnect("cpu:1")
    assert run(x).shape == (3,)


def test_devices_of_jobs_have_long_names_in_errors() -> None:
    names = [f"/job:worker/task:{k}/device:cpu:0" for k in range(2)]

    def pick(x, index):
        with gc.device("/task:1"):
            return np.tanh(x)[index]

    run = gc.compile(pick, devices=names)
    x = np.ones(3, np.float32)
    with pytest.raises(GraphError, match=r"\(on /job:worker/task:1/device:cpu:0\)"):
        run(x, np.int64(9))
    cluster.disconnect(names[1])
    try:
        with pytest.raises(GraphError, match=f"device {names[1]} is gone"):
            run(x, np.int64(1))
    finally:
        cluster.reconnect(names[1])
    texts = [text for r in run.stages(x, np.int64(1)) for _, text in r.note.reasons]
    assert any(f"goes to {names[1]}" in text for text in texts)


def test_what_failed_and_where_are_both_told() -> None:
    def far(x, index):
        with gc.device("cpu:1"):
            return np.log(x)[index]

    x = np.array([1.0, 0.0, 2.0])
    run = gc.compile(far, devices=["cpu:0", "cpu:1"], check_finite=True)
    with pytest.raises(gc.RunError, match=r"-inf at \[1\] \(on cpu:1\)"):
        run(x, np.int64(0))
    with pytest.raises(gc.RunError, match=r"index 9 is out of .* extent 3 .*\(on cpu:1\)"):
        run(x + 1, np.int64(9))


RATES, LINK = Rates(1.0, 1.0, 0.0), Link(0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, RATES, LINK), "cannot be a type of device"),
        (("bad", (1.0, 1.0, 0.0), LINK), "needs Rates"),
        (("bad", RATES, None), "needs Link"),
        (("bad", Rates("1", 1.0, 0.0), LINK), "must be positive numbers"),
        (("bad", RATES, Link(None, 1.0)), "must be positive numbers"),
        (("bad", Rates(math.nan, 1.0, 0.0), LINK), "must be positive numbers"),
        (("bad", Rates(1e-320, 1.0, 0.0), LINK), "must be positive numbers"),
        (("bad", Rates(10**400, 1.0, 0.0), LINK), "must be positive numbers"),
        (("bad", RATES, Link(1e308, 1.0)), "must be positive numbers"),
        (("bad", RATES, LINK, "tpu"), "a device runs on"),
        (("bad", RATES, LINK, ["cpu"]), "a device runs on"),
    ],
)
def test_bad_types_of_devices(arguments, message) -> None:
    with pytest.raises(GraphError, match=message):
        register_device(*arguments)


@pytest.mark.parametrize("name", ["cpu:" + "9" * 5000, "/task:" + "1" * 5000, "cpu:\uff11"])
def test_numbers_of_devices_have_few_digits(name) -> None:
    with pytest.raises(GraphError, match=r"write .*cpu:0"):
        parse_spec(name)
    with pytest.raises(GraphError, match=r"write \[offset"):
        parse_place(f"cpu:0[{'9' * 5000}:4]")
    with pytest.raises(GraphError, match=r"write for example"):
        cluster.disconnect(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("error_budget", 10**400),
        ("place_seconds", 10**400),
        ("sample", 3),
        ("devices", {"cpu:0", "cpu:1"}),
    ],
)
def test_options_that_are_out_of_bounds(name, value) -> None:
    with pytest.raises(GraphError, match=name):
        Config.create(**{name: value})


def test_a_constraint_needs_a_device(saved, invoke) -> None:
    status, text = invoke("show", saved, "--after", "place", "--place", "h")
    assert status == 1 and "'h' is no constraint" in text


def test_costs_that_cannot_be_kept(saved, invoke, tmp_path, monkeypatch) -> None:
    """A calibration says so; a run has its results all the same."""
    from graphc.frontend.compile import measure_devices

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(measure_devices, "calibrate", lambda: Measured({"cpu": kind_of("cpu")}, {}))
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setattr(measured, "default_path", lambda root=root: root / "costs.json")
        status, text = invoke("devices", "--calibrate")
        assert status == 1 and "cannot write" in text
        status, _ = invoke("run", saved, "--seed", "0", "--trace", str(tmp_path / "out.json"))
        assert status == 0 and (tmp_path / "out.json").exists()


def test_options_that_are_true_or_false() -> None:
    for name in ("soft_placement", "check_finite", "fast_math"):
        with pytest.raises(GraphError, match=f"{name} must be True or False"):
            Config.create(**{name: "x"})


OPTIONS = {
    "threads": (True, "2", -1, 1.5),
    "opt": (True, 3, "2"),
    "verify": (True, 9, -1, "x"),
    "fold_bytes": (True, -1, "x"),
    "fold_flops": (True, -1.0, "x", math.nan),
    "place_seconds": (True, -1, "x", math.nan),
    "error_budget": (True, -1, "x", math.inf),
    "compress": (1, 0, "truncat", 2.0),
    "memory_limit": (True, "1GB", -1),
    "costs": (3, "measurd", "no such file"),
    "dump": (3, True),
    "sample": (3, [1.0]),
    "devices": (3, "", [""], {"cpu:0"}, "cpu:0,cpu:1", b"cpu:0"),
}


@pytest.mark.parametrize(
    ("option", "value"), [(name, bad) for name, values in OPTIONS.items() for bad in values]
)
def test_no_option_is_accepted_and_ignored(option: str, value: Any) -> None:
    """On one device, too, where some of them would change nothing."""
    with pytest.raises(GraphError, match=option if option != "devices" else "device"):
        gc.compile(np.tanh, **{option: value})(np.ones(3))


NEARLY = [
    ("cup:1", "did you mean cpu"),
    ("cpu1", "did you mean cpu:1"),
    ("CPU:0", "upper and lower case"),
    ("cuda:0", "GPUs are called gpu:0"),
    ("/job:worker/task:1/device:simm:0", "did you mean sim"),
    ("nonsense", "there are cpu, gpu"),
    ("cpu:64", "numbered from 0 to 63"),
]


@pytest.mark.parametrize(("name", "hint"), NEARLY)
def test_names_that_no_device_can_have(name: str, hint: str) -> None:
    """Refused wherever they are written, with the user's line and what may have been meant."""

    def asks(x: Any) -> Any:
        with gc.device(name):
            return np.tanh(x)

    def named(x: Any) -> Any:
        return gc.name(np.tanh(x), "h")

    x = np.ones(3)
    for call in (
        lambda: asks(x),
        lambda: gc.compile(asks)(x),
        lambda: gc.compile(asks, soft_placement=True)(x),
        lambda: gc.compile(asks, devices=["cpu:0", "cpu:1"])(x),
    ):
        with pytest.raises(GraphError, match=r"(?s)there is no device.*test_devices.py:.*" + hint):
            call()
    for call in (
        lambda: gc.compile(np.tanh, devices=name)(x),
        lambda: gc.compile(np.tanh, devices=["cpu:0", name])(x),
        lambda: gc.compile(named, constraints=[f"h={name}"])(x),
        lambda: gc.compile(named, constraints=[f"h={name}"], soft_placement=True)(x),
    ):
        with pytest.raises(GraphError, match=r"(?s)there is no device.*" + hint):
            call()


def test_options_and_values_that_are_nearly_named() -> None:
    with pytest.raises(GraphError, match="did you mean soft_placement"):
        gc.compile(np.tanh, softplacement=True)
    with pytest.raises(GraphError, match="did you mean hidden"):
        gc.compile(lambda x: gc.name(x + 1, "hidden"), constraints=["hiden=cpu:0"])(np.ones(3))


def test_a_comma_at_the_end_of_the_devices(saved, invoke) -> None:
    words = ("show", saved, "--after", "place", "--devices")
    assert invoke(*words, "cpu:0,cpu:1,")[1] == invoke(*words, "cpu:0, cpu:1")[1]
    assert invoke(*words, "cpu:0,cpu:1,")[0] == 0
    status, text = invoke(*words, ",")
    assert status == 1 and "devices is empty" in text
