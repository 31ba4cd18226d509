"""CUDA graphs of acts, with conditional nodes where the device decides.

    act act decide -> [ while: act act decide ] -> act decide -> [ if: act | else: act act ]
    captured          a body, captured by itself    captured

`decide` is a kernel that sets the condition of the node after it, or of the one around it, from the
verdict that a kernel before has written.  Every so often it looks whether the run has been
cancelled or a kernel has failed, and ends the loop then: that is memory of the host, far away.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from graphc.runtime.cuda.interface import CAPTURE, Acts, Decision, Streamed

if TYPE_CHECKING:
    from graphc.runtime.cuda.driver import Cuda

_NEEDED = "cuGraphConditionalHandleCreate"
_FIRST_VERSION = 12040  # of the driver that has these nodes

# Looks: a word that counts the runs of a loop's body, or 0 for a choice.  A run that is cancelled
# fails with the status -1 (CANCELLED), which is noted as kernels note theirs: row << 32 | status.
KERNEL = """
.version 8.0
.target sm_75
.address_size 64

.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

.visible .entry decide (
    .param .u64 handle, .param .u64 verdict, .param .u64 looks, .param .u64 cancel,
    .param .u64 status, .param .u64 row
)
{
    .reg .pred %is, %rare;
    .reg .b32 %byte, %value;
    .reg .b64 %handle, %at, %looks, %count, %word, %row;

    ld.param.u64 %handle, [handle];
    ld.param.u64 %at, [verdict];
    ld.param.u64 %looks, [looks];
    ld.global.u8 %byte, [%at];
    setp.ne.u32 %is, %byte, 0;
    selp.u32 %value, 1, 0, %is;
    setp.eq.u64 %rare, %looks, 0;
    @%rare bra SET;
    ld.global.u64 %count, [%looks];
    add.u64 %count, %count, 1;
    st.global.u64 [%looks], %count;
    and.b64 %count, %count, 255;
    setp.ne.u64 %rare, %count, 0;
    @%rare bra SET;
    ld.param.u64 %at, [cancel];
    ld.volatile.global.u64 %word, [%at];
    ld.param.u64 %at, [status];
    ld.volatile.global.u64 %count, [%at];
    or.b64 %row, %word, %count;
    setp.ne.u64 %is, %row, 0;
    selp.u32 %value, 0, %value, %is;
    setp.eq.u64 %rare, %word, 0;
    @%rare bra SET;
    setp.ne.u64 %rare, %count, 0;
    @%rare bra SET;
    ld.param.u64 %row, [row];
    shl.b64 %row, %row, 32;
    or.b64 %row, %row, 4294967295;
    st.volatile.global.u64 [%at], %row;
SET:
    {
        .param .b64 parameter0;
        .param .b32 parameter1;
        st.param.b64 [parameter0], %handle;
        st.param.b32 [parameter1], %value;
        call.uni cudaGraphSetConditional, (parameter0, parameter1);
    }
    ret;
}
"""


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
        self.kernel: Any = None

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
            else:
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
        driver = self.driver
        if self.kernel is None:
            module = driver.do("cuModuleLoadData", KERNEL.encode() + b"\0")
            self.kernel = driver.function(module, "decide")
        words = (int(handle), act.verdict, *act.words, act.row)
        driver.launch(driver.prepare(self.kernel, (1, 1, 0), words), stream)

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
