"""Links over TCP: the bits of one process, and nobody is heard who does not know the token."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError
from graphc.runtime.cluster import transport
from graphc.runtime.load.layouts import LinkWords

pytest.importorskip("zmq")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

X = np.random.default_rng(0).standard_normal((40, 40)).astype("f4")


@pytest.fixture(scope="module", params=[True, False], ids=["encrypted", "signed"])
def workers(request: pytest.FixtureRequest) -> Iterator[gc.cluster.LocalCluster]:
    with gc.cluster.local(workers=2, job="wired", links="tcp", encrypt=request.param) as found:
        yield found


def loop(x: Any) -> Any:
    def body(k: Any, h: Any) -> Any:
        with gc.device("/task:0"):
            a = np.tanh(h @ h)
        with gc.device("/task:1"):
            return h * 0.5 + a

    return gc.fori(0, 20, body, x)


def gradient(x: Any) -> Any:
    return gc.value_and_grad(lambda x: (loop(x) ** 2).mean())(x)


def large(x: Any) -> Any:
    with gc.device("/task:1"):
        y = np.tile(x, (20, 20))
    with gc.device("/task:0"):
        return y + 1, y[:0], x


@pytest.mark.parametrize("function", [loop, gradient, large])
def test_results_are_those_of_one_process(
    workers: gc.cluster.LocalCluster, function: Callable[..., Any]
) -> None:
    alone = [name.replace("wired", "nobody") for name in workers.devices]
    near, far = (gc.compile(function, devices=names) for names in (alone, workers.devices))
    for _ in range(3):
        found, wanted = far(X), near(X)
        pairs = [(found, wanted)] if function is loop else zip(found, wanted)
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def test_this_process_takes_part_and_failures_pass(workers: gc.cluster.LocalCluster) -> None:
    @gc.compile(devices=["cpu:0", *workers.devices])
    def mixed(x, k):
        with gc.device("/job:wired/task:1"):
            y = np.tanh(x)[k]
        with gc.device("/job:localhost/device:cpu:0"):
            return y + 1

    for _ in range(2):
        np.testing.assert_array_equal(mixed(X, np.int64(3)), gc.compile(np.tanh)(X)[3] + 1)
        with pytest.raises(GraphError, match="index 99"):
            mixed(X, np.int64(99))


# ------------------------------------------------------------------------- carriers alone

TOKEN = "a token of no use"


@pytest.fixture(scope="module")
def support() -> Any:
    return gc.compile(lambda x: x).executable(X).support


made: list[transport.Carrier] = []
troubles: list[str] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()
    troubles.clear()


ENCRYPTS = pytest.mark.parametrize("encrypts", [True, False], ids=["encrypted", "signed"])


def pair(support: Any, here: str, there: str, encrypts: bool = True) -> tuple[Any, Any, Any, Any]:
    """A carrier with a link that sends, and one with the link that takes, with these tokens."""
    a, b = (
        transport.Carrier(support, transport.sockets_for_links(token, encrypts), troubles.append)
        for token in (here, there)
    )
    made.extend((a, b))
    a.open(1, 7, {0: (True, 16, b.address, 0)})
    b.open(1, 7, {0: (False, 16, a.address, 0)})
    return a, b, a.links[1, 7, 0], b.links[1, 7, 0]


def put(support: Any, carrier: Any, link: Any, value: int) -> None:
    """Send a message as a device does."""
    link.room[:16] = value
    link.words[LinkWords.sent] += 16
    support.ring(carrier.at)


def comes(link: Any, word: int, value: int, seconds: float = 300.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and link.words[word] < value:
        time.sleep(0.001)
    return bool(link.words[word] == value)


@ENCRYPTS
def test_messages_come_once_and_in_order(support: Any, encrypts: bool) -> None:
    a, b, sends, takes = pair(support, TOKEN, TOKEN, encrypts)
    for number in range(1, 6):
        put(support, a, sends, number)
        assert comes(takes, LinkWords.sent, 16 * number)
        assert (takes.room[:16] == number).all()
        takes.words[LinkWords.taken] += 16
        support.ring(b.at)
        assert comes(sends, LinkWords.taken, 16 * number)


@ENCRYPTS
def test_who_does_not_know_the_token_is_not_heard(support: Any, encrypts: bool) -> None:
    a, b, sends, takes = pair(support, TOKEN, TOKEN + "!", encrypts)
    put(support, a, sends, 1)
    c, _, others, _ = pair(support, TOKEN + "!", TOKEN + "!", encrypts)
    c.links = {(1, 7, 0): others}
    others.peer = b.address
    put(support, c, others, 2)  # one who knows it comes through, after the first one has tried
    assert comes(takes, LinkWords.sent, 16)
    assert (takes.room[:16] == 2).all()
    assert a.links[1, 7, 0].words[LinkWords.taken] == 0


def test_frames_of_other_openings_and_nonsense_are_dropped(support: Any) -> None:
    _, b, _, takes = pair(support, TOKEN, TOKEN)
    link = takes
    for position, piece in ((16, b"x" * 15), (17, b"x" * 17), (0, b""), (-1, b""), (1 << 60, b"")):
        b._move(link, position, piece)
        assert link.words[LinkWords.sent] == 0
    b._move(link, 8, b"x" * 8)
    b._move(link, 8, b"x" * 8)
    assert link.words[LinkWords.sent] == 8
    b.open(1, 8, {0: (False, 16, "", 0)})
    assert (1, 7, 0) not in b.links
    b.drop(1)
    assert not b.links


def test_a_head_that_was_changed_or_is_not_signed_is_no_head() -> None:
    sockets = transport.PlainSockets(TOKEN)
    head = transport.HEAD.pack(1, 7, 0, True, 16)
    signed = sockets.sealed(head)
    assert sockets.opened(signed) == head
    changed = [bytes([*signed[:k], signed[k] ^ 1, *signed[k + 1 :]]) for k in range(len(signed))]
    for frame in (head, b"", signed[:-1], signed + b"x", head * 2, *changed):
        assert sockets.opened(frame) is None
    sockets.close()


def until(condition: Callable[[], object]) -> bool:
    end = time.monotonic() + 300
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return bool(condition())


def test_a_connection_that_is_cut_or_never_made_is_told(
    support: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, sends, takes = pair(support, TOKEN, TOKEN)
    put(support, a, sends, 1)
    assert comes(takes, LinkWords.sent, 16)
    made.remove(b)
    b.close()
    assert until(lambda: any("was cut" in text for text in troubles))
    monkeypatch.setattr(transport, "MOST_WAIT", 200)

    def is_told() -> bool:
        put(support, a, sends, 2)  # what goes just as the connection is cut is lost
        return any("no connection" in text for text in troubles)

    assert until(is_told)


def test_short_tokens_are_refused() -> None:
    with pytest.raises(GraphError, match="16 characters"):
        transport.keys_of("short")
    with pytest.raises(GraphError, match="links"):
        gc.cluster.local(1, links="pigeon", job="other")
    with pytest.raises(GraphError, match="encrypt is True or False"):
        gc.cluster.local(1, links="tcp", encrypt="no", job="other")  # type: ignore[arg-type]
