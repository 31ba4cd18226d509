"""What a stage of the pipeline is: one rewrite, what it runs on, and what holds behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.ir.graph import Graph, Program
from graphc.ir.traits import Traits

Stages = Graph | Program
Check = Callable[[Stages], None]


class Over(Enum):
    """What a stage is a function of."""

    GRAPH = "every device's graph"
    REGIONS = "every device's graph, and first the regions of control flow in it"
    WHOLE = "the one graph of all devices; left as it is once `partition` has cut that"
    PROGRAM = "all devices at once, where there are several"


class Keeps(Enum):
    """In what relation the values that a stage makes are to those that they stand for."""

    EXPRESSIONS = "the same expressions"  # seen from structure (`value_numbers`)
    BITS = "the same bits"
    ROUNDING = "the same but for rounding"
    PRECISION = "as precise as the configuration asks for"


@record(frozen=True, eq=False)
class Stage:
    """One rewrite: a function of its own name, or of another if that stands twice in the table.

    rewrite   "folder.name" of a function in a file of its name, or a function
    over      what it is called with: each device's graph, or all devices at once
    about     a graph none of whose ops has such a trait is left as it is
    asked     whether a configuration asks for it; others leave all as it is
    keeps     how each new value is related to the one it stands for (see `validation`)
    ensures   predicates that hold from here on, or from the end of its cycle
    breaks    predicates that hold no more, until a later stage ensures them again
    optional  skipped at opt=0
    cycle     stages of one cycle run in turn until none of them changes anything
    searches  it gets a function as well, which tells what the stages behind `schedule` would make
              of the graph of a device: kernels in memory
    binds     it gets the sizes as well that the graph is compiled for
    renews    parameters and results may differ behind it: later stages are compared with what it
              made, not with the graph before it
    """

    rewrite: Callable[..., Stages] | str
    over: Over = Over.GRAPH
    about: frozenset[str] | None = None
    asked: Callable[[Config], bool] = lambda config: True
    keeps: Keeps = Keeps.ROUNDING
    ensures: tuple[Check, ...] = ()
    breaks: tuple[Check, ...] = ()
    optional: bool = False
    name: str = ""
    cycle: str = ""
    searches: bool = False
    binds: bool = False
    renews: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            named = self.rewrite if isinstance(self.rewrite, str) else self.rewrite.__name__
            object.__setattr__(self, "name", named.rpartition(".")[2])

    @property
    def run(self) -> Callable[..., Stages]:
        """The function, imported when it is first asked for: few graphs need every stage."""
        return pass_at(self.rewrite) if isinstance(self.rewrite, str) else self.rewrite

    def concerns(self, value: Stages, config: Config) -> bool:
        """Has the value what the stage is a function of and about, and is it asked for?"""
        if self.over is Over.PROGRAM and (isinstance(value, Graph) or len(value.graphs) < 2):
            return False
        about = self.about
        return (about is None or not about.isdisjoint(value.traits)) and self.asked(config)

    @property
    def folder(self) -> str:
        """The folder of `graphc/passes` that it lies in."""
        return self.run.__module__.split(".")[2]


@cache
def pass_at(place: str) -> Callable[..., Stages]:
    """The pass in a folder and file of `graphc/passes`."""
    return getattr(import_module(f"graphc.passes.{place}"), place.rpartition(".")[2])  # type: ignore[no-any-return]


def cycle(*stages: Stage) -> Iterator[Stage]:
    """Stages that run in turn until none of them changes anything."""
    return (replace(stage, cycle=stages[0].name) for stage in stages)


def has(*traits: str) -> frozenset[str]:
    """Ops that have one of these traits."""
    assert set(traits) <= set(Traits.__match_args__)
    return frozenset(traits)
