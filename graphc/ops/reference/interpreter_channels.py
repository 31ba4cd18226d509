"""Messages between the devices of a program while the reference interpreter runs it.

Every device has a thread of its own, so that loops on several of them may talk to each other; what
they compute does not depend on who comes first, because every channel has one sender and one
reader and is first in, first out.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.errors import GraphError


class _Stopped(Exception):
    """Another device failed first."""


class Mail:
    """The channels of one run; the first error wakes everybody who waits.

    `sent`, if given, receives every message by channel; `given` has, in their order, messages that
    are delivered instead.
    """

    def __init__(
        self,
        sent: dict[str, list[Any]] | None = None,
        given: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.sent = sent
        self.given = {channel: iter(messages) for channel, messages in (given or {}).items()}
        self.changed = threading.Condition()
        self.boxes: dict[str, deque[Any]] = defaultdict(deque)
        self.waiting: dict[int, str] = {}  # device number -> channel
        self.running = 1
        self.device = threading.local()
        self.error: BaseException | None = None

    def put(self, channel: str, message: Any) -> None:
        with self.changed:
            self.boxes[channel].append(next(self.given.get(channel, iter(())), message))
            if self.sent is not None:
                self.sent.setdefault(channel, []).append(message)
            self.changed.notify_all()

    def take(self, channel: str) -> Any:
        """The next message. Raises GraphError when all devices wait for one."""
        with self.changed:
            self.waiting[self.device.number] = channel
            self._check()
            self.changed.wait_for(lambda: self.error is not None or self.boxes[channel])
            if self.error is not None:
                raise _Stopped
            del self.waiting[self.device.number]
            return self.boxes[channel].popleft()

    def run(self, devices: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each of these functions returns, run at once. Raises the first error."""
        self.running = len(devices)
        made: list[Any] = [None] * len(devices)

        def work(number: int) -> None:
            self.device.number = number
            try:
                made[number] = devices[number]()
            except _Stopped:
                pass
            except BaseException as error:  # noqa: BLE001  it is raised again where the run was asked for
                self._fail(error)
            with self.changed:
                self.running -= 1
                self._check()

        numbers = range(1, len(devices))
        threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in numbers]
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            if not isinstance(self.error, KeyboardInterrupt):  # a long call of NumPy hears none
                thread.join()
        if self.error is not None:
            raise self.error
        return made

    def _check(self) -> None:
        """Fail if nobody is left who could send what the others wait for."""
        stuck = len(self.waiting) == self.running > 0
        if stuck and not any(self.boxes[channel] for channel in self.waiting.values()):
            listed = ", ".join(sorted(self.waiting.values()))
            self._fail(GraphError(f"deadlock: every device waits for a message ({listed})"))

    def _fail(self, error: BaseException) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()
