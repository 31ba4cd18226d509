"""Public classes say what they take where they are given something else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError

WRONG: tuple[Any, ...] = (None, 1, 1.5, "x", b"x", [1], {"a": 1}, object(), np.ones(3), type)


@pytest.mark.parametrize("made", [gc.Array, gc.Graph, gc.LoadedGraph, gc.Program, gc.Session])
def test_wrong_arguments_of_constructors_are_graph_errors(made: Any) -> None:
    for count, wrong in itertools.product((1, 3, 5), WRONG):
        with pytest.raises(GraphError):
            made(*[wrong] * count)


def test_an_argument_that_is_not_there_says_what_is_taken() -> None:
    with pytest.raises(TypeError, match="did you mean graph"):
        gc.LoadedGraph(grph=None)  # type: ignore[call-arg]
