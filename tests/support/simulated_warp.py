"""A warp without a GPU: what each lane asks for and gets, carried out as NVIDIA's manual says (PTX
ISA, "ldmatrix" and "Matrix Fragments for mma.m16n8k16")."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

WARP, WORD = 32, ir.IntType(64)
LANES = [divmod(lane, 4) for lane in range(WARP)]  # its group g, and its place t in it


def constant(value: int) -> ir.Constant:
    return ir.Constant(WORD, value)


class Numbers:
    """A builder that computes with literals instead of writing code."""

    def add(self, x: Any, y: Any) -> Any:
        return constant(x.constant + y.constant)

    def mul(self, x: Any, y: Any) -> Any:
        return constant(x.constant * y.constant)

    def and_(self, x: Any, y: Any) -> Any:
        return constant(x.constant & y.constant)

    def lshr(self, x: Any, y: Any) -> Any:
        return constant(x.constant >> y.constant)

    def gep(self, pointer: Any, index: list[Any]) -> Any:
        return constant(pointer.constant + index[0].constant)


class Warp:
    """Runs the code of all lanes twice: to know where they point, and with what they get."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.places: list[list[int]] = []  # of each load, by lane
        self.products: list[list[Any]] = []  # operands of each product, by lane
        self.lane = self.load = self.product = 0
        self.pointing = True

    def load_four(self, builder: Any, place: Any, turned: bool) -> list[Any]:
        number, self.load = self.load, self.load + 1
        if self.pointing:
            if number == len(self.places):
                self.places.append([])
            self.places[number].append(place.constant)
            return [None] * 4
        g, t = LANES[self.lane]
        found = []
        for first in range(0, WARP, 8):
            lines = [self.memory[p : p + 8] for p in self.places[number][first : first + 8]]
            square = np.array(lines).T if turned else np.array(lines)
            found.append(square[g, 2 * t : 2 * t + 2])
        return found

    def multiply(self, builder: Any, name: str, a: Any, b: Any, sums: Any) -> list[int]:
        number, self.product = self.product, self.product + 1
        if not self.pointing:
            if number == len(self.products):
                self.products.append([])
            self.products[number].append((a, b, sums))
        return [number] * 4

    def run(self, emit: Any, totals: np.ndarray, a: int, b: int) -> np.ndarray:
        """The totals of all lanes after the products; row l is lane l's."""
        for self.pointing in (True, False):
            for self.lane in range(WARP):
                self.load = self.product = 0
                given = [list(totals[self.lane]), None, constant(a), constant(b)]
                emit(None, Numbers(), None, [*given, constant(self.lane)])
        return np.concatenate([self.carried_out(p) for p in self.products], axis=1)

    def carried_out(self, operands: list[Any]) -> np.ndarray:
        """One product of the warp, from the operands of its lanes: their four sums each."""
        left, right, sums = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
        for (g, t), (a, b, c) in zip(LANES, operands, strict=True):
            near, far = slice(2 * t, 2 * t + 2), slice(2 * t + 8, 2 * t + 10)
            left[g, near], left[g + 8, near], left[g, far], left[g + 8, far] = a
            right[near, g], right[far, g] = b
            sums[g, near], sums[g + 8, near] = c[:2], c[2:]
        made = left @ right + sums
        return np.array([[*made[g, 2 * t :][:2], *made[g + 8, 2 * t :][:2]] for g, t in LANES])
