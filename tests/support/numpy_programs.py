"""Random small NumPy programs, as people write them: arrays made on the way, written to in loops.

A program is a list of statements on variables of known shape and dtype.  Every statement is first
tried with NumPy, and one that NumPy refuses is left out; what is left is a function's source.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
ROWS, COLUMNS = 4, 3
ARGUMENTS: dict[str, Any] = {
    "x": np.arange(12.0).reshape(ROWS, COLUMNS) / 4 - 1,
    "v": np.array([1.5, -2.0, 0.25, 3.0], np.float32),
    "ids": np.array([2, 0, 3, 2]),
    "flags": np.array([True, False, True, True]),
}
OUTSIDE: dict[str, Any] = {
    "np": np,
    "TABLE": np.arange(12.0).reshape(ROWS, COLUMNS) ** 2,
    "COUNTS": np.arange(5, dtype=np.int32),
}
SHAPES = ["3", "4", "(4, 3)", "(3, 4)", "(2, 2)", "()"]
DTYPES = ["float", "np.float32", "int", "bool", "np.int32", "'f8'"]
HELPERS = """
def add_rows(target, rows):
    for row in rows:
        target += row
    return target
def scaled(a, by=2.0):
    made = np.empty(a.shape)
    made[...] = a * by
    return made
class Counter:
    def __init__(self, n):
        self.total = np.zeros(n)
    def add(self, value):
        self.total += value
        return self
"""


class Writer:
    """Makes one program; `random` decides everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [*ARGUMENTS, "TABLE", "COUNTS"]
        self.own: list[str] = []

    def pick(self, options: Sequence[Item]) -> Item:
        return self.random.choice(options)

    def name(self) -> str:
        return self.pick([*self.names, *self.own * 2])

    def index(self) -> str:
        return self.pick(
            [
                "0",
                "-1",
                "1:",
                ":2",
                "::-1",
                "1",
                "..., 0",
                ":, 1",
                "0, 1",
                "None",
                "ids",
                "flags",
                "[0, 2]",
                "ids[1]",
                "np.array([1, 0])",
                "np.arange(2)",
                "ids[:2], 1",
            ]
        )

    def created(self) -> str:
        shape, dtype = self.pick(SHAPES), self.pick(DTYPES)
        return self.pick(
            [
                f"np.zeros({shape})",
                f"np.ones({shape}, {dtype})",
                f"np.zeros({shape}, {dtype})",
                f"np.full({shape}, 2, {dtype})",
                f"np.full({shape}, {self.scalar()})",
                "np.arange(4)",
                "np.arange(1.0, 4.0)",
                "np.eye(3)",
                "np.array([1, 2, 3])",
                "np.linspace(0, 1, 4)",
                f"np.zeros_like({self.name()})",
                f"np.ones_like({self.name()}, dtype={dtype})",
                f"np.array([{self.scalar()}, 1.0, 2])",
                f"np.array([{self.name()}, {self.name()}])",
                f"np.full_like({self.name()}, 1)",
                f"np.asarray({self.name()})",
                f"np.ascontiguousarray({self.name()}.T)",
                f"np.array({self.name()})",
                f"{self.name()}.copy()",
                f"{self.name()}.astype({dtype})",
                "np.identity(4)[:, :3]",
                "np.tri(3)[0]",
                "np.meshgrid(np.arange(3), np.arange(4))[0]",
                f"np.broadcast_to({self.name()}, (4, 3)).copy()",
            ]
        )

    def scalar(self) -> str:
        return self.pick(
            [
                "x[0, 0]",
                "x.sum()",
                "v.max()",
                "ids[0]",
                "1.5",
                "2",
                "TABLE[1, 1]",
                "np.float32(2)",
                "len(v)",
                "flags.any()",
                "np.pi",
            ]
        )

    def expression(self) -> str:
        a, b = self.name(), self.name()
        return self.pick(
            [
                f"{a} + {b}",
                f"{a} * {b}",
                f"{a} - {self.scalar()}",
                f"np.maximum({a}, {b})",
                f"np.where({a} > 1, {a}, {b})",
                f"{a}[{self.index()}]",
                f"{a}.T",
                f"-{a}",
                f"{a}.reshape(-1)",
                f"{a}.sum(axis=0)",
                f"np.sqrt(np.abs({a}))",
                f"{a} > {b}",
                f"{a}.mean()",
                f"np.stack([{a}, {a}])",
                f"np.concatenate([{a}, {b}])",
                f"{a} @ {b}",
                f"np.cumsum({a})",
                f"{a}.clip(0, 2)",
                f"{a}.ravel()",
                f"np.outer({a}, {b})",
                f"np.dot({a}, {b})",
                f"{a}.any()",
                f"{a} == {b}",
                f"scaled({a})",
                f"{a}.astype(float)",
                f"np.sum([{self.scalar()}, {self.scalar()}])",
                f"{a}[{a} > 1].sum()",
                f"{a}[{a} > 1].mean()",
                f"{a}.max(0)",
                f"Counter({a}.shape).add({b}).total",
                f"[q * 2 for q in {a}][0]",
                f"add_rows(np.zeros(3), {a})",
                f"(lambda q: q + {a})({b})",
                f"np.round({a}, 1)",
                "np.bincount(ids, minlength=5)",
                f"np.take({a}, ids, axis=0)",
                f"{a}.size + {b}",
            ]
        )

    def statement(self) -> list[str]:
        kind = self.random.random()
        fresh = f"a{len(self.own)}"
        if kind < 0.3 or not self.own:
            self.own.append(fresh)
            return [f"{fresh} = {self.created()}"]
        if kind < 0.45:
            self.own.append(fresh)
            return [f"{fresh} = {self.expression()}"]
        target, value = self.pick(self.own), self.pick([self.name(), self.expression(), "2"])
        operator = self.pick(["=", "+=", "-=", "*=", "+="])
        if kind < 0.6:
            return [f"{target} {self.pick(['+=', '-=', '*=', '&=', '/=', '|='])} {value}"]
        if kind < 0.75:
            return [f"{target}[{self.index()}] {operator} {value}"]
        return self.compound(target, value, operator)

    def compound(self, target: str, value: str, operator: str) -> list[str]:
        source = self.name()
        return self.pick(
            [
                ["for k in range(3):", f"    {target}[k] {operator} {source}[k]"],
                [f"for k, item in enumerate({source}):", f"    {target}[k] {operator} item.sum()"],
                [f"{target}[{target} < 1] {operator} {self.pick(['2', '0'])}"],
                [f"{target}[{source} > 1] {operator} 2"],
                [f"m = {source} > 1", f"{target}[m] {operator} {source}[m]"],
                [f"{target}[{target} > 1] = np.sqrt({target}[{target} > 1]) + 1"],
                [f"np.add.at({target}, ids, {value})"],
                [f"np.copyto({target}, {value})"],
                [f"np.add({target}, {value}, out={target})"],
                [f"row = {target}[0]", f"row[...] {operator} {value}", "del row"],
                [f"part = {target}[1:]", f"part {self.pick(['+=', '*='])} {value}", "del part"],
                [f"view = {target}.reshape(-1)", f"view[0] {operator} {self.scalar()}", "del view"],
                [f"{target}.fill({self.scalar()})"],
                [f"{target}.sort()"],
                [
                    "def inner(q):",
                    f"    q += {value}",
                    f"    return {target} * 2",
                    f"{target} = inner({target})",
                ],
                [f"add_rows({target}, {source})"],
                [f"np.fill_diagonal({target}, {self.scalar()})"],
                [f"{target}.T[0] {operator} {value}"],
                [
                    f"if {target}.ndim == {source}.ndim and {target}.dtype == {source}.dtype:",
                    f"    {target} = {target} + {source}",
                ],
                [f"np.put_along_axis({target}, {target}.argsort(0), {value}, 0)"],
            ]
        )


def program(seed: int, length: int = 8) -> str:
    """The source of a function `f` of ARGUMENTS that NumPy runs without an error."""
    writer, body = Writer(seed), list[str]()
    for _ in range(20 * length):
        if len(body) >= length:
            break
        own = list(writer.own)
        lines = writer.statement()
        new = [n for n in writer.own if n not in own]
        writer.own = own
        if _runs(source_of([*body, *lines], [*own, *new])):
            body, writer.own = [*body, *lines], [*own, *new]
    return source_of(body, writer.own)


def source_of(body: list[str], results: list[str]) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    names = ", ".join([*results, *ARGUMENTS])
    return f"{HELPERS}\ndef f({', '.join(ARGUMENTS)}):\n{lines}\n    return ({names},)\n"


def _runs(source: str) -> bool:
    try:
        with np.errstate(all="raise"):
            made = run(function_of(source))
    except Exception:  # noqa: BLE001  (whatever NumPy refuses)
        return False
    sizes = [np.asarray(a) for a in made]
    return all(a.size < 200 and a.dtype.kind in "biuf" and (np.abs(a) < 1e6).all() for a in sizes)


def function_of(source: str, name: str = "<program>") -> Callable[..., Any]:
    """The function, whose source tracebacks and graphc find under the name of its file."""
    scope: dict[str, Any] = {
        key: np.copy(a) if isinstance(a, np.ndarray) else a for key, a in OUTSIDE.items()
    }
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), scope)
    function: Callable[..., Any] = scope["f"]
    return function


def run(function: Callable[..., Any]) -> tuple[Any, ...]:
    """What a function makes of copies of ARGUMENTS."""
    return tuple(function(*(np.copy(a) for a in ARGUMENTS.values())))
