"""What a name that is not there was meant to be: near spellings, words of other libraries."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.errors import GraphError

# Names of JAX, PyTorch, TensorFlow and NumPy, and what stands for them here.
FOREIGN = {
    "jit": "gc.compile",
    "njit": "gc.compile",
    "function": "gc.compile",
    "make_jaxpr": "fn.graph(...), or gc.show(fn.graph(...)) for its text",
    "tensor": "a NumPy array: NumPy arrays go in and come out",
    "Tensor": "np.ndarray, or gc.Array for results that stay on a device",
    "array": "np.array, also inside a compiled function",
    "asarray": "np.asarray, also inside a compiled function",
    "ShapeDtypeStruct": "gc.spec(shape, dtype)",
    "TensorSpec": "gc.spec(shape, dtype)",
    "placeholder": "gc.spec(shape, dtype)",
    "device_put": "gc.to_device",
    "GradientTape": "gc.grad or gc.value_and_grad of a function",
    "autograd": "gc.grad",
    "jacfwd": "gc.jacobian",
    "jacrev": "gc.jacobian",
    "no_grad": "gc.stop_gradient(x)",
    "detach": "gc.stop_gradient(x)",
    "remat": "gc.checkpoint",
    "fori_loop": "gc.fori",
    "lax": "gc.cond, gc.scan, gc.fori and gc.while_loop",
    "pmap": "gc.parallel",
    "Module": "a function of parameters, or the layers of gc.nn",
    "Linear": "gc.nn.Dense",
    "Conv2d": "gc.nn.Conv",
    "Conv2D": "gc.nn.Conv",
    "BatchNorm2d": "gc.nn.BatchNorm",
    "functional": "the functions of gc: gc.relu, gc.softmax, gc.conv ...",
    "MSELoss": "gc.nn.mse",
    "CrossEntropyLoss": "gc.cross_entropy",
    "Adam": "gc.optim.adam",
    "AdamW": "gc.optim.adamw",
    "SGD": "gc.optim.sgd",
    "DataLoader": "gc.data.Loader",
    "vectorize": "gc.vmap",
    "PRNGKey": "gc.random.key",
    "block_until_ready": "nothing: results are there when a call returns",
    "pvary": "nothing: gc.psum and the like take any value",
    "tree": "nothing: functions take dicts, lists, tuples and dataclasses of arrays as they are",
    "tree_util": "gc.register_pytree for classes; dicts, lists, tuples and dataclasses are known",
    "tree_map": "a comprehension over the dict, list or tuple",
    "from_numpy": "nothing: NumPy arrays go in and come out",
    "randn": "gc.random.normal(key, shape)",
    "rand": "gc.random.uniform(key, shape)",
    "seed": "gc.random.key(seed), a key that is passed on",
    "manual_seed": "gc.random.key(seed), a key that is passed on",
    "debug": "gc.print and gc.callback",
    "apply_updates": "optimizer.update, which returns the new parameters",
    "ReLU": "gc.nn.relu",
    "GELU": "gc.nn.gelu",
    "ModuleList": "a list of layers, or gc.nn.Sequential",
    # options
    "axis": "in_axes",
    "out_axis": "out_axes",
    "in_dims": "in_axes",
    "out_dims": "out_axes",
    "argnums": "wrt",
    "argnum": "wrt",
    "static_argnums": "static",
    "static_argnames": "static",
    "donate_argnums": "donate",
    "donate_argnames": "donate",
    "lr": "rate",
    "learning_rate": "rate",
    "betas": "beta1 and beta2",
    "eps": "epsilon",
    "batch_size": "batch",
    "validation_split": "validation",
    "validation_data": "validation",
    "num_threads": "threads",
    "dynamic": "sizes",
    "dynamic_shapes": "sizes",
    "fullgraph": "nothing: a function is always one graph",
    "nopython": "nothing: all of it is native",
    "dim": "axis",
    "keepdim": "keepdims",
}

# The same of attributes and methods of arrays.
FOREIGN_METHODS = {
    "at": "an assignment: x[i] = value, or x[i] += value",
    "add_": "x += value",
    "clamp": "np.clip",
    "cpu": "nothing: arrays go in and come out",
    "cuda": 'gc.device("gpu:0"), or devices= of gc.compile',
    "detach": "gc.stop_gradient(x)",
    "dim": "x.ndim",
    "double": "x.astype(np.float64)",
    "float": "x.astype(np.float32)",
    "half": "x.astype(np.float16)",
    "index_select": "x[index], or np.take",
    "long": "x.astype(np.int64)",
    "matmul": "x @ y",
    "numel": "x.size",
    "numpy": "nothing: a compiled function returns NumPy arrays",
    "permute": "x.transpose",
    "requires_grad": "gc.grad of a function",
    "to": "x.astype for a type, gc.device for a device",
    "type": "x.astype",
    "unsqueeze": "x[None], or np.expand_dims",
}


def close_to(name: str, names: Iterable[str], most: int, least: float = 0.6) -> list[str]:
    """The names most like one, best first; `least` of their letters are the same."""
    import difflib  # which errors alone need

    return difflib.get_close_matches(name, list(names), most, least)


def meant(name: str, known: Iterable[str], prefix: str = "") -> str | None:
    """What was meant by a name that is not known: other libraries' words first, then spelling."""
    names = sorted(known)
    if name in FOREIGN:
        there = FOREIGN[name]
        if not there.isidentifier() or there in names:
            return f"graphc's word for it is {there}"
    near = close_to(name, names, 3)
    return f"did you mean {' or '.join(prefix + n for n in near)}?" if near else None


def meant_method(name: str, known: Iterable[str]) -> str | None:
    """What was meant by an attribute that arrays do not have."""
    there = FOREIGN_METHODS.get(name)
    near = close_to(name, sorted(known), 3)
    if there is None:
        return f"near: {', '.join(near)}" if near else None
    return f"graphc's word for it is {there}"


class MissingName(GraphError, AttributeError):
    """A name that a module of graphc does not have; an AttributeError, too, as Python asks."""


def missing(module: str, name: str, known: Iterable[str]) -> MissingName:
    """The error of a module's `__getattr__`. What looks for marks like `_name` wants no hint."""
    hint = None if name.startswith("_") else meant(name, known, f"{module}.")
    return MissingName(f"module {module!r} has no attribute {name!r}", hint=hint)
