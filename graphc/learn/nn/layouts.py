"""Parameters as PyTorch and Keras hold them, from and to the layers of gc.nn.

              gc.nn                    PyTorch                      Keras
    dense     [in, out]                [out, in]                    [in, out]
    conv      [out, in, *window]       the same                     [*window, in, out]
    LSTM      [from, i f g o]          [i f g o, from], two biases  [from, i f g o], one bias
    GRU       [from, r z n]            [r z n, from], two biases    [from, z r n], bias [2, 3 H]
                                                                    (reset_after) or [3 H]

Every pair is exact: there and back gives the same bits.  Embeddings and norms are alike everywhere.
"""

from __future__ import annotations

from typing import Any

from graphc.base.refusing import refuse_all
from graphc.ops.record.value import as_value
from graphc.ops.record.value import functions as f

Params = dict[str, Any]


def _present(**arrays: Any) -> Params:
    return {name: array for name, array in arrays.items() if array is not None}


# ---------------------------------------------------------------------------------- dense and conv


def dense_from_torch(weight: Any, bias: Any = None) -> Params:
    """torch.nn.Linear to Dense."""
    return _present(weight=f.transpose(weight), bias=bias)


def dense_to_torch(params: Params) -> Params:
    """Dense to torch.nn.Linear: weight, bias."""
    return _present(weight=f.transpose(params["weight"]), bias=params.get("bias"))


def dense_from_keras(kernel: Any, bias: Any = None) -> Params:
    """keras.layers.Dense to Dense."""
    return _present(weight=kernel, bias=bias)


def dense_to_keras(params: Params) -> Params:
    """Dense to keras.layers.Dense: kernel, bias."""
    return _present(kernel=params["weight"], bias=params.get("bias"))


def conv_from_keras(kernel: Any, bias: Any = None) -> Params:
    """keras.layers.Conv1D, 2D or 3D to Conv; images become [batch, channels, *spatial]."""
    spatial = range(len(as_value(kernel).shape) - 2)
    return _present(
        weight=f.transpose(kernel, (len(spatial) + 1, len(spatial), *spatial)), bias=bias
    )


def conv_to_keras(params: Params) -> Params:
    """Conv to keras.layers.Conv1D, 2D or 3D: kernel, bias."""
    rank = len(as_value(params["weight"]).shape)
    kernel = f.transpose(params["weight"], (*range(2, rank), 1, 0))
    return _present(kernel=kernel, bias=params.get("bias"))


# ---------------------------------------------------------------------------------- LSTM and GRU


def lstm_from_torch(
    weight_ih: Any, weight_hh: Any, bias_ih: Any = None, bias_hh: Any = None
) -> Params:
    """One layer of torch.nn.LSTM to LSTM; the two biases stay two."""
    bias = None if bias_ih is None else f.stack([bias_ih, bias_hh])
    return _present(input=f.transpose(weight_ih), recurrent=f.transpose(weight_hh), bias=bias)


def lstm_to_torch(params: Params) -> Params:
    """LSTM to one layer of torch.nn.LSTM: weight_ih, weight_hh, bias_ih, bias_hh."""
    biases: tuple[Any, Any] = (None, None)
    if (bias := params.get("bias")) is not None:
        single = len(bias.shape) == 1
        biases = (bias, f.zeros_like(bias)) if single else (bias[0], bias[1])
    return _present(
        weight_ih=f.transpose(params["input"]),
        weight_hh=f.transpose(params["recurrent"]),
        bias_ih=biases[0],
        bias_hh=biases[1],
    )


def lstm_from_keras(kernel: Any, recurrent_kernel: Any, bias: Any = None) -> Params:
    """keras.layers.LSTM to LSTM."""
    return _present(input=kernel, recurrent=recurrent_kernel, bias=bias)


def lstm_to_keras(params: Params) -> Params:
    """LSTM to keras.layers.LSTM: kernel, recurrent_kernel, bias; two biases are added up."""
    bias = params.get("bias")
    if bias is not None and len(bias.shape) == 2:
        bias = f.add(bias[0], bias[1])
    return _present(kernel=params["input"], recurrent_kernel=params["recurrent"], bias=bias)


def gru_from_torch(
    weight_ih: Any, weight_hh: Any, bias_ih: Any = None, bias_hh: Any = None
) -> Params:
    """One layer of torch.nn.GRU to GRU with reset_after."""
    return lstm_from_torch(weight_ih, weight_hh, bias_ih, bias_hh)


def gru_to_torch(params: Params) -> Params:
    """GRU with reset_after to one layer of torch.nn.GRU."""
    return lstm_to_torch(params)


def _swapped(x: Any) -> Any:
    """The first two of three gates along the last axis in the other order."""
    if x is None:
        return None
    first, second, third = f.split(x, 3, axis=-1)
    return f.concatenate([second, first, third], axis=-1)


def gru_from_keras(kernel: Any, recurrent_kernel: Any, bias: Any = None) -> Params:
    """keras.layers.GRU to GRU: reset_after as there."""
    return _present(
        input=_swapped(kernel), recurrent=_swapped(recurrent_kernel), bias=_swapped(bias)
    )


def gru_to_keras(params: Params) -> Params:
    """GRU to keras.layers.GRU: kernel, recurrent_kernel, bias."""
    return _present(
        kernel=_swapped(params["input"]),
        recurrent_kernel=_swapped(params["recurrent"]),
        bias=_swapped(params.get("bias")),
    )


# ---------------------------------------------------------------------------------- attention


def attention_from_torch(
    in_proj_weight: Any, out_proj_weight: Any, in_proj_bias: Any = None, out_proj_bias: Any = None
) -> Params:
    """torch.nn.MultiheadAttention to MultiHeadAttention."""
    weights = f.split(in_proj_weight, 3, axis=0)
    biases = [None] * 3 if in_proj_bias is None else f.split(in_proj_bias, 3, axis=0)
    made = {
        name: dense_from_torch(weight, bias)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases)
    }
    return {**made, "output": dense_from_torch(out_proj_weight, out_proj_bias)}


def attention_to_torch(params: Params) -> Params:
    """MultiHeadAttention to torch.nn.MultiheadAttention: in_proj_*, out_proj_*."""
    parts = [dense_to_torch(params[name]) for name in ("query", "key", "value")]
    has_bias = "bias" in parts[0]
    output = dense_to_torch(params["output"])
    return _present(
        in_proj_weight=f.concatenate([p["weight"] for p in parts], axis=0),
        in_proj_bias=f.concatenate([p["bias"] for p in parts], axis=0) if has_bias else None,
        out_proj_weight=output["weight"],
        out_proj_bias=output.get("bias"),
    )


refuse_all([name for name in globals() if "_from_" in name or "_to_" in name], globals())
