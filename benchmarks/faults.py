"""Training while workers fail: python -m benchmarks.faults [N [SEED]] [--network] [--json]

N faults, one after the other, at random moments of training on three workers; losses and weights
have to be those of calm training in one process, to the bit.

    killed       SIGKILL
    stopped      SIGSTOP, and no word any more
    slow         SIGSTOP for up to a second, then it goes on
    link cut     --network: the interface of its machine is down for up to five seconds
    half-open    --network: what it sends is lost, then it is killed: nobody hears an end

With --network every worker has a network namespace of its own and joins over encrypted TCP (needs
root, or user namespaces); without it workers are of this machine, with links in memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

import numpy as np

import graphc as gc
from graphc import nn, optim, parallel
from graphc.runtime.cluster.remote_workers import RemoteCluster

COUNT, STEPS, WIDTH = 3, 48, 64
WATCHED_SECONDS = 20.0
HOME, PORT = "10.77.0.1", 5555
TOKEN = "a secret of this benchmark"
RANK = "import graphc as gc; gc.cluster.from_environment(threads=1, job='worker')"
KINDS = {"killed": 0.5, "stopped": 0.2, "slow": 0.3}
NETWORK_KINDS = {"killed": 0.3, "stopped": 0.1, "slow": 0.2, "link cut": 0.2, "half-open": 0.2}


# ---------------------------------------------------------------------------------------- training


class Layers:
    """Three layers, one on each device, whose weights are variables there."""

    def __init__(self, devices: Sequence[str], home: str) -> None:
        rng = np.random.default_rng(2)
        self.start = [rng.standard_normal((WIDTH, WIDTH)).astype("f4") / 8 for _ in range(COUNT)]
        pairs = enumerate(self.start)
        self.kept = [gc.Variable(w, f"w{k}", container=f"layers_{home}") for k, w in pairs]
        self.batch = rng.standard_normal((32, WIDTH)).astype("f4")
        self.compiled = gc.compile(self.step, devices=list(devices), threads=1)

    def step(self, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for task, w in enumerate(ws):
                with gc.device(f"/task:{task}"):
                    h = np.tanh(h @ w)
            return (h * h).mean()

        value, gradients = gc.value_and_grad(loss)([w.value for w in self.kept])
        for w, gradient in zip(self.kept, gradients, strict=True):
            w.assign_add(-0.1 * gradient)
        return value

    def __call__(self) -> float:
        return float(self.compiled(self.batch))


class Copies:
    """A copy of the parameters on each device; gradients are summed, Adam's state is shared out."""

    def __init__(self, devices: Sequence[str], home: str) -> None:
        from graphc.frontend.trace.tree import flatten

        net = nn.Sequential(nn.Dense(20, 40), nn.tanh, nn.Dense(40, 3))
        rng = np.random.default_rng(3)
        x = rng.standard_normal((30, 20)).astype("f4")
        self.batch = x, np.sin(x[:, :3])

        def loss(params: Any, batch: Any) -> Any:
            return nn.mse(net(params, batch[0]), batch[1])

        params = net.init(gc.random.key(0))
        rule = optim.adam(1e-2)
        trainer = parallel.Synchronous(loss, params, rule, devices, shard=True, threads=1)
        self.trainer = trainer
        self.kept = flatten([trainer.params, trainer.state], keep_order=True)[0]
        self.start = [np.array(v.value) for v in self.kept]

    def __call__(self) -> float:
        return float(self.trainer(self.batch))


def reset(model: Any) -> None:
    """All variables as they were at first."""
    for variable, value in zip(model.kept, model.start, strict=True):
        variable.assign(value)


def bits(model: Any) -> list[bytes]:
    """The contents of all variables."""
    return [np.asarray(v.value).tobytes() for v in model.kept]


# ------------------------------------------------------------------------------------------ faults


class Fault:
    """One fault: it comes after a delay, its cause goes away, and when it was noticed."""

    def __init__(self, kind: str, cluster: Any, task: int, delay: float, seconds: float) -> None:
        self.kind, self.task, self.delay, self.seconds = kind, task, delay, seconds
        self.cluster, self.victim = cluster, cluster.workers[task]
        self.begin = self.noticed = 0.0
        self.has_begun, self.has_steps_behind = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        time.sleep(self.delay)
        self.begin = time.perf_counter()
        pid = self.victim.pid
        if self.kind == "killed":
            kill(pid, signal.SIGKILL)
        elif self.kind in ("stopped", "slow"):
            kill(pid, signal.SIGSTOP)
        elif self.kind == "link cut":
            ip("link", "set", f"w{self.task}", "down")
        else:
            self.cluster.machines[self.task].lose_what_is_sent(True)
            kill(pid, signal.SIGKILL)
        self.has_begun.set()
        self.watch(self.seconds if self.kind in ("slow", "link cut", "half-open") else 0.0)
        if self.kind == "slow":
            kill(pid, signal.SIGCONT)
        elif self.kind == "link cut":
            ip("link", "set", f"w{self.task}", "up")
        elif self.kind == "half-open":
            self.cluster.machines[self.task].lose_what_is_sent(False)
        self.watch(WATCHED_SECONDS)
        if self.kind == "stopped":
            kill(pid, signal.SIGKILL)  # as whoever starts ranks does with one that does nothing

    def watch(self, seconds: float) -> None:
        """Wait so long; note when the client first knows of the fault. With that, or when steps
        have come after the fault, a long wait ends."""
        while time.perf_counter() < self.begin + seconds:
            if not self.noticed and (self.victim.lost or self.cluster.trouble):
                self.noticed = time.perf_counter() - self.begin
            is_over = self.noticed or self.has_steps_behind.is_set()
            if is_over and seconds == WATCHED_SECONDS:
                return
            time.sleep(1e-3)


def kill(pid: int, how: signal.Signals) -> None:
    """Send a signal to a worker, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def disturbed(cluster: Any, model: Any, plan: Iterator[str], rng: Any, rows: Any) -> list[float]:
    """The losses of training while one fault comes after the other."""
    losses, row = [], {}
    for number in range(STEPS):
        if number % 3 == 0 and (kind := next(plan, None)):
            scale = 2e-3 if rng.random() < 0.5 else 2e-2
            seconds = rng.random() * (1.0 if kind == "slow" else 5.0)
            fault = Fault(kind, cluster, rng.integers(COUNT), rng.random() * scale, seconds)
            row = {"fault": fault}
            print(kind, f"{fault.task} {fault.delay:.4f} {fault.seconds:.2f}", file=sys.stderr)
        elif row:
            row["fault"].has_begun.wait()  # this step and the next one meet it for certain
        before = cluster.restarts
        losses.append(model())
        if row and cluster.restarts > before:
            row["done"] = time.perf_counter()
        if row and number in range(2, STEPS, 3):
            row["fault"].has_steps_behind.set()
            row["fault"].thread.join()
            rows.append(row)
            row = {}
    return losses


def campaign(cluster: Any, count: int, kinds: dict[str, float], seed: int) -> dict[str, Any]:
    """What became of so many faults. Raises AssertionError where a bit differs."""
    rng, rows, runs = np.random.default_rng(seed), [], 0
    alone = [f"/job:alone/task:{task}/device:cpu:0" for task in range(COUNT)]
    plan = iter(rng.choice([*kinds], count, p=[*kinds.values()]).tolist())
    pairs = [(make(alone, "calm"), make(cluster.devices, "stormy")) for make in (Layers, Copies)]
    wanted = [([calm() for _ in range(STEPS)], bits(calm)) for calm, _ in pairs]
    while len(rows) < count:
        number = runs % len(pairs)
        model = pairs[number][1]
        reset(model)
        losses = disturbed(cluster, model, plan, rng, rows)
        assert losses == wanted[number][0], "the losses differ"
        assert bits(model) == wanted[number][1], "the weights differ"
        runs += 1
        so_far = {kind: told(kind, rows) for kind in kinds}
        print(f"{len(rows)} faults, {runs} runs, all equal", file=sys.stderr)
        print(json.dumps(so_far), file=sys.stderr, flush=True)
    return {"runs": runs, "restarts": cluster.restarts, **{k: told(k, rows) for k in kinds}}


def told(kind: str, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The figures of one kind of fault, in seconds from its beginning."""
    mine = [row for row in rows if row["fault"].kind == kind]
    noticed = [row["fault"].noticed for row in mine if row["fault"].noticed]
    done = [row["done"] - row["fault"].begin for row in mine if "done" in row]
    made: dict[str, float] = {"faults": len(mine), "steps done again": len(done)}
    for name, found in (("noticed", noticed), ("went on", done)):
        if found:
            made |= {f"{name}, median": median(found), f"{name}, longest": max(found)}
    return made


# ----------------------------------------------------------------------------------------- network


def ip(*words: str, inside: int = 0) -> None:
    """The command `ip`, in the network namespace of a process if one is given."""
    where = ["nsenter", "-t", str(inside), "-n"] if inside else []
    subprocess.run([*where, "ip", *words], check=True)


class Machine:
    """A network namespace with a worker, which is started again whenever it has ended."""

    def __init__(self, task: int) -> None:
        self.task = task
        self.keeper = subprocess.Popen(
            ["unshare", "-n", "cat"], stdin=subprocess.PIPE
        )  # as we live
        while os.readlink(f"/proc/{self.keeper.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        name, pid = f"w{task}", self.keeper.pid
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        ip("link", "set", name, "master", "br0", "up")
        ip("addr", "add", f"10.77.0.{task + 2}/24", "dev", "eth0", inside=pid)
        for each in ("lo", "eth0"):
            ip("link", "set", each, "up", inside=pid)
        self.is_closing = False
        self.process = self.started()
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def started(self) -> subprocess.Popen[bytes]:
        said = {
            "GRAPHC_ADDRESS": f"tcp://{HOME}:{PORT}",
            "GRAPHC_TOKEN": TOKEN,
            "GRAPHC_RANK": str(self.task + 1),
            "GRAPHC_RANKS": str(COUNT + 1),
        }
        inside = ["nsenter", "-t", str(self.keeper.pid), "-n", sys.executable, "-c", RANK]
        return subprocess.Popen(inside, env={**os.environ, **said})

    def keep(self) -> None:
        while True:
            self.process.wait()
            if self.is_closing:
                return
            self.process = self.started()

    def lose_what_is_sent(self, lost: bool) -> None:
        """Frames to the client and to the other workers go to a machine that there is not."""
        for last in {1, 2, 3, 4} - {self.task + 2}:
            what = ["replace", f"10.77.0.{last}", "dev", "eth0"]
            way = [*what, "lladdr", "02:00:00:00:00:99", "nud", "permanent"]
            back = ["del", f"10.77.0.{last}", "dev", "eth0"]
            ip("neigh", *(way if lost else back), inside=self.keeper.pid)

    def close(self) -> None:
        self.is_closing = True
        self.process.kill()
        self.thread.join()
        self.keeper.kill()
        self.keeper.wait()


@contextmanager
def in_namespaces() -> Iterator[Any]:
    """A cluster whose workers have networks of their own; it is in one of its own, too."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "br0", "type", "bridge")
    ip("addr", "add", f"{HOME}/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    machines = [Machine(task) for task in range(COUNT)]
    try:
        options = {"job": "worker", "patience": 2.5, "retries": 9}
        with RemoteCluster(f"tcp://{HOME}:{PORT}", TOKEN, COUNT, 1, **options) as cluster:
            cluster.machines = machines  # type: ignore[attr-defined]
            yield cluster
    finally:
        for machine in machines:
            machine.close()


def main() -> None:
    """Run a campaign, and print what came of it."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    count, seed = (*map(int, words), *(100, 3)[len(words) :])
    begin: Callable[[], Any]
    if "--network" in sys.argv:
        if "--inside" not in sys.argv:
            alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]
            again = [sys.executable, "-m", "benchmarks.faults", *sys.argv[1:], "--inside"]
            sys.exit(subprocess.run([*alone, *again]).returncode)
        kinds, begin = NETWORK_KINDS, in_namespaces
    else:
        kinds = KINDS
        begin = lambda: gc.cluster.local(workers=COUNT, threads=1, retries=9)  # noqa: E731
    with begin() as cluster:
        found = campaign(cluster, count, kinds, seed)
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    print(
        f"{found['runs']} runs, {found['restarts']} restarts: all bits are those of calm training"
    )
    for kind in kinds:
        print(f"{kind:10}", *(f"{name} {value:.4g};" for name, value in found[kind].items()))


if __name__ == "__main__":
    main()
