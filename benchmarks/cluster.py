"""What messages between processes cost: python -m benchmarks.cluster [--json]

A value goes to and fro between two workers in a loop of the program, so that only links are timed;
beside them a copy of as many bytes in one process, and a step of three workers that does nothing.
Over TCP (with the extra `cluster`), beside two processes that send as many bytes through a socket.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

import graphc as gc

TRIPS = 200
ECHO = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
data = memoryview(bytearray(int(sys.argv[2])))
while True:
    at = 0
    while at < len(data):
        count = connection.recv_into(data[at:])
        if not count:
            sys.exit()
        at += count
    connection.sendall(data)
"""


def seconds(call: Callable[[], Any], times: int) -> list[float]:
    """Of each of so many calls, in order of length."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return sorted(found)


def to_and_fro(value: Any) -> Any:
    """A value goes to the other task and back, TRIPS times."""

    def body(k: Any, x: Any) -> Any:
        with gc.device("/task:1"):
            x = np.abs(x)
        with gc.device("/task:0"):
            return np.negative(x)

    return gc.fori(0, TRIPS, body, value)


def at_home(value: Any) -> Any:
    """The same arithmetic without messages."""
    with gc.device("/task:0"):
        return gc.fori(0, TRIPS, lambda k, x: np.negative(np.abs(x)), value)


def message(devices: list[str], nbytes: int, times: int) -> dict[str, float]:
    """Microseconds of a message, and of a copy of its bytes in this process."""
    value = np.ones(nbytes // 4, np.float32)
    far, near = (gc.compile(f, devices=devices) for f in (to_and_fro, at_home))
    for run in (far, near):
        run(value)
    whole = median(seconds(lambda: far(value), times)) - median(seconds(lambda: near(value), times))
    target = np.empty_like(value)
    copy = median(seconds(lambda: np.copyto(target, value), 200))
    return {"message": 1e6 * whole / TRIPS / 2, "copy": 1e6 * copy}


def through_sockets(nbytes: int, times: int) -> float:
    """Microseconds of a message between two processes that have a socket and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        other = subprocess.Popen([sys.executable, "-c", ECHO, port, str(nbytes)])
        connection = server.accept()[0]
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = memoryview(bytearray(nbytes))

    def trip() -> None:
        connection.sendall(data)
        at = 0
        while at < nbytes:
            at += connection.recv_into(data[at:])

    with connection:
        found = median(seconds(trip, times))
    other.wait()
    return 1e6 * found / 2


def over_tcp(nbytes: int) -> dict[str, dict[str, float]]:
    """Messages over TCP, encrypted and not; nothing where ZeroMQ is missing."""
    found: dict[str, dict[str, float]] = {}
    if find_spec("zmq") is None:
        return found
    for encrypt, title in ((True, "encrypted"), (False, "signed")):
        with gc.cluster.local(workers=2, threads=1, links="tcp", encrypt=encrypt) as cluster:
            row = {"message": message(cluster.devices, nbytes, 3)["message"]}
        found[f"{nbytes:,} bytes, {title}"] = row | {"socket": through_sockets(nbytes, 100)}
    return found


def empty_step() -> dict[str, float]:
    """Microseconds of a step in which three workers take part and do next to nothing."""
    with gc.cluster.local(workers=3, threads=1) as cluster:

        @gc.compile(devices=cluster.devices)
        def step(x: Any) -> Any:
            made = []
            for task in range(3):
                with gc.device(f"/task:{task}"):
                    made.append(x + task)
            return made

        x = np.zeros(1, np.float32)
        step(x)
        found = seconds(lambda: step(x), 2000)
    return {"least": 1e6 * found[0], "median": 1e6 * median(found)}


def main() -> None:
    """Measure, and print a table or JSON."""
    with gc.cluster.local(workers=2, threads=1) as cluster:
        found = {
            "4 bytes": message(cluster.devices, 4, 30),
            "4 MB": message(cluster.devices, 4 << 20, 5),
        }
    found |= over_tcp(4) | over_tcp(4 << 20)
    found["empty step of 3 workers"] = empty_step()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for title, row in found.items():
        print(f"{title:26}", *(f"{name} {value:8.1f} us" for name, value in row.items()))


if __name__ == "__main__":
    main()
