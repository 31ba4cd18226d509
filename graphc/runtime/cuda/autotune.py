"""Tries what makes a product of matrices on memory of its own: whether the results are those of
the kernels, and how long it takes."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.gemm import ITEMSIZE, Gemm
from graphc.runtime.cuda.interface import COMPUTE, Act, Multiplier, Streamed
from graphc.runtime.cuda.matrix_addresses import place
from graphc.runtime.load.program import numpy_dtype
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.gemm_choice import GemmChoice

PERIOD = 65521  # random elements, repeated: a prime, so that rows differ
SHORTEST = 1e-9  # seconds of a call
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
STATUS_BYTES = 8


class Trial:
    """Operands of the product of a row, and what makes it. Raises LimitError without memory."""

    def __init__(self, products: GemmChoice, row: int, library: Multiplier) -> None:
        self.part, self.row, self.library = products.part, row, library
        self.driver, self.memory = self.part.driver, self.part.memory
        self.product: Gemm = self.part.image.products[row]
        self.plans = list(library.plans(self.product))
        self.taken: list[int] = []
        try:
            self.addresses = [self._take(size) for size in self.product.sizes]
            self.workspace = self._take(max((p.workspace for p in self.plans), default=0))
            status = self._take(STATUS_BYTES)
            self.driver.zero(status, STATUS_BYTES, COMPUTE)
            self._fill()
            self.kernels = products.launches(row, self.addresses, status)
        except BaseException:
            self._free()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._free()

    def _take(self, nbytes: int) -> int:
        self.taken.append(self.memory.allocate(nbytes))
        return self.taken[-1]

    def _free(self) -> None:
        for address in self.taken:
            self.driver.free(address)

    def _fill(self) -> None:
        """Random operands."""
        random = np.random.default_rng(0)
        for matrix, element, *_ in self.product.matrices.values():
            address, size = self.addresses[matrix.operand], self.product.sizes[matrix.operand]
            block = random.uniform(-1, 1, PERIOD).astype(numpy_dtype(element))
            done = min(size, block.nbytes)
            self._upload(address, block[: done // block.itemsize])
            while done < size:
                more = min(done, size - done)
                self.driver.copy(address + done, address, more, COMPUTE)
                done += more

    def _spoil(self) -> None:
        """Make the last column of the result NaN: activations have to let it pass."""
        matrix, element, rows, columns = self.product.matrices["right"]
        last = self.product.extent(matrix, rows, columns) - 1
        address = place(matrix, element, self.addresses) + last * ITEMSIZE[element]
        self._upload(address, np.array([np.nan]).astype(numpy_dtype(element)))

    def _upload(self, address: int, values: np.ndarray[Any, Any]) -> None:
        self.driver.copy(address, address_of(values), values.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)

    def result(self, step: Streamed) -> np.ndarray[Any, Any]:
        """What something leaves in the memory of the result, or at the end of it: what goes wrong
        with strides is there."""
        matrix, element, rows, columns = self.product.matrices["target"]
        whole = self.product.extent(matrix, rows, columns) * ITEMSIZE[element]
        size = min(whole, tuned.trial_compared)
        address = place(matrix, element, self.addresses) + whole - size
        found = np.empty(size // ITEMSIZE[element], numpy_dtype(element))
        self.driver.zero(address, size, COMPUTE)
        step(COMPUTE)
        self.driver.copy(address_of(found), address, found.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)
        return found.astype(np.float64)

    def agreeing(self) -> list[tuple[int, Streamed]]:
        """The plans, by number, whose results are those of the kernels but for rounding."""
        prepare = partial(self.library.prepare, addresses=self.addresses)
        found = [
            (number, prepare(plan, workspace=self.workspace, row=self.row))
            for number, plan in enumerate(self.plans)
        ]
        found = self._near_ones(found)
        if self.product.activation:
            self._spoil()
            found = self._near_ones(found)
        return found

    def _near_ones(self, plans: list[tuple[int, Streamed]]) -> list[tuple[int, Streamed]]:
        wanted = self.result(self.kernels)
        return [plan for plan in plans if self.near(wanted, self.result(plan[1]))]

    def near(self, wanted: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> bool:
        """Do two results differ by no more than orders of sums, and roundings, can?"""
        product = self.product
        largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        sums = EPSILON["f64" if product.element == "f64" else "f32"] * product.depth
        slack = 8 * EPSILON[product.result] * largest + 4 * sums * abs(product.scale)
        return np.allclose(found, wanted, rtol=0, atol=slack, equal_nan=True)

    def seconds(self, step: Streamed) -> float:
        """The median time of one call among several, as a graph of calls where there are graphs:
        between two of those the host does nothing."""
        first = max(self._time(step, 1), SHORTEST)
        rounds = max(1, min(tuned.trial_rounds, int(tuned.trial_seconds / first)))
        repeats = min(tuned.trial_repeats, int(tuned.trial_budget / (rounds * first)))
        if not repeats:
            return first
        if not self.driver.captures:
            return median(self._time(step, rounds) for _ in range(repeats))
        graph = self.driver.graph([Act((), step)] * rounds)
        launch = partial(self.driver.launch_graph, graph)
        self._time(launch, 1)  # the first launch of a graph sends it to the device
        return median(self._time(launch, 1) for _ in range(repeats)) / rounds

    def _time(self, step: Streamed, rounds: int) -> float:
        begin, end = (self.driver.event(timed=True) for _ in range(2))
        self.driver.record(begin, COMPUTE)
        for _ in range(rounds):
            step(COMPUTE)
        self.driver.record(end, COMPUTE)
        self.driver.settle(end)
        return self.driver.seconds(begin, end) / rounds
