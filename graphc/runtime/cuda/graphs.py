"""CUDA graphs of acts, with conditional nodes where the device decides.

    act act decide -> [ while: act act decide ] -> act decide -> [ if: act | else: act act ]
    captured          a body, captured by itself    captured

`decide` is a kernel that sets the condition of the node after it, or of the one around it, from the
verdict that a kernel before has written (`device_code`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from graphc.runtime.cuda.interface import CAPTURE, Act, Acts, Decision, Streamed

if TYPE_CHECKING:
    from graphc.runtime.cuda.driver import Cuda

_NEEDED = "cuGraphConditionalHandleCreate"
_FIRST_VERSION = 12080  # of the driver that has these nodes, with a second way


class Graph:
    """A recorded graph, ready to launch, destroyed with this object."""

    def __init__(self, driver: Cuda, graph: Any) -> None:
        self.handle = driver.do("cuGraphInstantiate", graph, 0)
        weakref.finalize(self, driver.drop, "cuGraphExecDestroy", self.handle).atexit = False


class Graphs:
    """Makes the graphs of one GPU."""

    def __init__(self, driver: Cuda) -> None:
        self.driver = driver
        self.lock = threading.Lock()  # the stream records one at a time

    @property
    def have_decisions(self) -> bool:
        """Whether the driver and its bindings know conditional nodes."""
        version = self.driver.do("cuDriverGetVersion")
        return hasattr(self.driver.api, _NEEDED) and int(version) >= _FIRST_VERSION

    def graph(self, acts: Acts) -> Graph:
        """What the acts do, one after another."""
        driver = self.driver
        with self.lock:
            made = driver.do("cuGraphCreate", 0)
            try:
                self._fill(made, acts)
                return Graph(driver, made)
            finally:
                driver.do("cuGraphDestroy", made)

    def _fill(self, graph: Any, acts: Acts, last: Streamed | None = None) -> None:
        """Add acts to a graph that is empty, then a last step."""
        before: list[Any] = []  # the nodes that the next one follows
        steps: list[Streamed] = []
        for act in acts:
            if isinstance(act, Decision):
                handle = self._handle(graph)
                decide = partial(self._decide, handle, act)
                before = self._capture(graph, before, [*steps, decide])
                before, steps = [self._decision(graph, before, handle, act)], []
            elif isinstance(act, Act):
                steps.append(act.step)
        if last is not None:
            steps.append(last)
        if steps:
            self._capture(graph, before, steps)

    def _capture(self, graph: Any, before: list[Any], steps: Sequence[Streamed]) -> list[Any]:
        """Add steps after some nodes; the nodes that what comes next follows."""
        do, stream = self.driver.do, self.driver.streams[CAPTURE]
        # In the strict modes memory that is freed meanwhile, by any thread, would break it off.
        mode = self.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        do("cuStreamBeginCaptureToGraph", stream, graph, before or None, None, len(before), mode)
        try:
            for step in steps:
                step(CAPTURE)
            *_, found, _, count = do("cuStreamGetCaptureInfo", stream)
            return list(found[:count])
        finally:
            do("cuStreamEndCapture", stream)

    def _handle(self, graph: Any) -> Any:
        return self.driver.do(_NEEDED, graph, self.driver.context, 0, 0)

    def _decide(self, handle: Any, act: Decision, stream: int) -> None:
        words = (int(handle), act.verdict, *act.words, act.row)
        driver, kernel = self.driver, self.driver.own("decide")
        driver.launch(driver.prepare(kernel, (1, 1, 0), words), stream)

    def _decision(self, graph: Any, before: list[Any], handle: Any, act: Decision) -> Any:
        """Add a conditional node with its bodies."""
        api = self.driver.api
        node = api.CUgraphNodeParams()
        node.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        kinds, condition = api.CUgraphConditionalNodeType, node.conditional
        condition.handle, condition.ctx = handle, self.driver.context
        condition.type = (
            kinds.CU_GRAPH_COND_TYPE_WHILE if act.repeats else kinds.CU_GRAPH_COND_TYPE_IF
        )
        condition.size = len(act.ways)
        node.conditional = condition
        made = self.driver.do("cuGraphAddNode", graph, before or None, None, len(before), node)
        last = partial(self._decide, handle, act) if act.repeats else None
        for body, acts in zip(node.conditional.phGraph_out, act.ways, strict=True):
            self._fill(body, acts, last)
        return made
