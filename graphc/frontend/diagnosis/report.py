"""A failing graph as a test file: the text of the graph, its arguments, and what should hold."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from graphc.frontend.diagnosis.bisect import Culprit
from graphc.ir.graph import Graph
from graphc.ir.text import literals, show
from graphc.passes.trial import Trial

MOST_TEXT = 50_000  # characters of arrays in a test file
_HEAD = '''"""{title}"""

{imports}import numpy as np

import graphc as gc

GRAPH = """\\
{graph}"""
ARGUMENTS = {{
{arguments}}}
'''
_TEST = """

def test_{name}():
{variables}    found = gc.bisect(gc.parse(GRAPH), ARGUMENTS{options})
    assert found is None, found
"""


def is_small(trial: Trial) -> bool:
    """Can the trial be written as one file?"""
    arrays = [*trial.arrays, *trial.state.values()]
    whole = isinstance(trial.value, Graph) and not list(literals(trial.value))
    return whole and sum(np.size(a) for a in arrays if not _rule(a)) * 8 <= MOST_TEXT


def test_file(trial: Trial, found: Culprit, options: dict[str, Any]) -> str:
    """A module for pytest that fails as long as the bug is there."""
    title = _title(found)
    name = re.sub(r"\W+", "_", title.split(":")[0]).strip("_").lower()
    names = [p.attrs["name"] for p in trial.value.params]
    arguments = "".join(
        f"    {name!r}: {written(array)},\n" for name, array in zip(names, trial.arrays)
    )
    variables = "".join(
        f"    with gc.container({home!r}):\n        gc.Variable({written(value)}, name={name!r})\n"
        for (home, name), value in trial.state.items()
    )
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    graph = show(trial.value).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    imports = "import ml_dtypes\n" if "ml_dtypes." in arguments + variables else ""
    head = _HEAD.format(title=title, imports=imports, graph=graph, arguments=arguments)
    return head + _TEST.format(name=name, variables=variables, options=given)


test_file.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test


def _title(found: Culprit) -> str:
    did = "makes a result differ" if found.symptom == "differs" else "crashes"
    reason = f": {found.reason}" if found.reason else ""
    text = f"{found.stage} {did}{reason}"
    return text.replace("\\", "/").replace('"', "'").splitlines()[0][:90] + "."


def written(value: Any) -> str:
    """An array as Python writes it, exactly."""
    array = np.asarray(value)
    kind = array.dtype.name
    if array.dtype.kind not in "biufc" or kind == "bfloat16":  # types that NumPy lacks, as bits
        bits = f"np.array({array.view(f'u{array.itemsize}').tolist()!r}, 'u{array.itemsize}')"
        return f"{bits}.view(ml_dtypes.{kind})"
    if rule := _rule(array):
        return rule
    text = _nested(array.tolist())
    shape = f".reshape({array.shape})" if not array.size else ""
    return f"np.array({text}, {kind!r}){shape}"


def _rule(value: Any) -> str:
    """How an array of equal numbers, or of 1, 2, 3 ..., is made; "" for any other."""
    array = np.asarray(value)
    if not array.size or array.dtype.kind not in "biufc":
        return ""
    if (array == array.flat[0]).all():
        return f"np.full({array.shape}, {_number(array.flat[0])}, {array.dtype.name!r})"
    counted = np.arange(1, array.size + 1).astype(array.dtype)
    if array.size > 3 and np.array_equal(array.reshape(-1), counted):
        shape = f".reshape({array.shape})" if array.ndim != 1 else ""
        return f"np.arange(1, {array.size + 1}).astype({array.dtype.name!r}){shape}"
    return ""


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return _number(value)


def _number(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return re.sub(r"\b(nan|inf)\b", r"np.\1", text)
