"""What torch.export refuses in words, and what an export keeps that its module does anew."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError, GraphHint
from graphc.formats.torch.records import Location
from graphc.seams.torch import argument_names

_EXAMPLES = "one tensor for each argument: gc.from_torch(module, x), kwargs={...} for keywords"


def export_refused(
    error: Exception, module: Any, title: str, examples: Sequence[Any], kwargs: Mapping[str, Any]
) -> GraphError:
    """The error of torch.export with the user's line and what to do next."""
    from torch.utils import _pytree as pytree

    reason, location = str(error).strip().split("\n")[0][:300], _line(error)
    leaves = pytree.tree_leaves((tuple(examples), dict(kwargs)))
    if any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
        location = None
        reason, hint = "examples are tensors, not NumPy arrays", "torch.from_numpy(x)"
    elif said := _misfit(module, examples, kwargs):
        location = None
        reason, hint = f"the examples do not fit: {said}", _EXAMPLES
    elif "dynamic_shapes" in reason:
        hint = "dynamic_shapes nests as the arguments do, as torch.export.export has it"
    elif _asks_elements(error):
        reason = "its Python code asks for the elements of a tensor, which only a run can tell"
        hint = "torch.where or torch.cond in place of an if, no int(), float() or item()"
    else:
        given = ", ".join(f"{tuple(x.shape)}" if hasattr(x, "shape") else repr(x) for x in leaves)
        hint = f"the module has to run on its examples, here {given[:200]}"
    return GraphError(f"torch.export refuses {title}: {reason}", location=location, hint=hint)


def _misfit(module: Any, examples: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What Python says of a call that does not fit the module's arguments."""
    try:
        inspect.signature(module.forward).bind(*examples, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # it has no signature
        pass
    return ""


def _asks_elements(error: Exception) -> bool:
    name = type(error).__name__
    return name == "GuardOnDataDependentSymNode" or "data-dependent" in str(error).lower()


def _line(error: Exception) -> Location | None:
    """The innermost line of what PyTorch calls that is not its own: the module's."""
    import torch

    own = str(Path(inspect.getfile(torch)).parent)
    traced = getattr(error, "real_stack", None) or ()
    found, is_inside = None, False
    for frame in (*traceback.extract_tb(error.__traceback__), *traced):
        if frame.filename.startswith(own):
            is_inside = True
        elif is_inside and frame.lineno and not frame.filename.startswith("<"):
            found = frame.filename, frame.lineno
    return found


def warn_of_dropout(program: Any, line: Any) -> None:
    """Say by a GraphHint that a program drops the same elements in every call."""
    for node in program.graph.nodes:
        if node.op == "call_function" and _drops(node):
            text = (
                "the program drops the same elements in every call: torch.compile(module, "
                'backend="graphc") draws them anew, and module.eval() drops none'
            )
            warnings.warn_explicit(text, GraphHint, *(line(node) or ("<unknown>", 1)))
            return


def _drops(node: Any) -> bool:
    import torch

    names = argument_names(node.target)
    if not names or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = dict(zip(names, node.args)) | dict(node.kwargs)
    share = given.get("dropout_p", given.get("p", 0.0))
    is_dropout = "dropout_p" in names or ("p" in names and "train" in names)
    return is_dropout and isinstance(share, float) and share > 0 and given.get("train") is not False
