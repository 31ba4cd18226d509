"""`gc.nn`: layers, initialisers, losses and metrics over pytrees of parameters.

    model = gc.nn.Sequential(gc.nn.Dense(200, 100), gc.nn.relu, gc.nn.Dense(100, 3))
    params = model.init(gc.random.key(0))
    loss = gc.nn.mse(model(params, x), y)

A layer holds sizes and options; its parameters are a pytree that the user holds.  Activations and
losses are those of gc.*, under the names people look for here.
"""

from __future__ import annotations

from graphc.base.hints import missing
from graphc.base.refusing import refuse_all
from graphc.learn.nn import init, layouts
from graphc.learn.nn.attention import MultiHeadAttention
from graphc.learn.nn.keras import keras_weights, load_keras
from graphc.learn.nn.layer import Layer, Residual, Sequential
from graphc.learn.nn.layers import (
    AvgPool,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    MaxPool,
    dropout,
)
from graphc.learn.nn.metrics import accuracy, binary_accuracy
from graphc.learn.nn.norms import BatchNorm, LayerNorm, RMSNorm
from graphc.learn.nn.recurrent import GRU, LSTM
from graphc.learn.nn.state_dict import load_state_dict, state_dict
from graphc.learn.trees import parameter_count
from graphc.ops.record.value import functions

relu, leaky_relu, elu, selu = (functions.relu, functions.leaky_relu, functions.elu, functions.selu)
gelu, silu, mish = functions.gelu, functions.silu, functions.mish
sigmoid, tanh, softplus = functions.sigmoid, functions.tanh, functions.softplus
softmax, log_softmax = functions.softmax, functions.log_softmax

mse, mae, huber, nll = functions.mse, functions.mae, functions.huber, functions.nll
cross_entropy, kl_divergence = functions.cross_entropy, functions.kl_divergence
binary_cross_entropy = functions.binary_cross_entropy
binary_cross_entropy_with_logits = functions.binary_cross_entropy_with_logits

__all__ = [
    "GRU",
    "LSTM",
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "MaxPool",
    "MultiHeadAttention",
    "RMSNorm",
    "Residual",
    "Sequential",
    "accuracy",
    "binary_accuracy",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "dropout",
    "elu",
    "gelu",
    "huber",
    "init",
    "keras_weights",
    "kl_divergence",
    "layouts",
    "leaky_relu",
    "load_keras",
    "load_state_dict",
    "log_softmax",
    "mae",
    "mish",
    "mse",
    "nll",
    "parameter_count",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "state_dict",
    "tanh",
]

refuse_all(__all__, globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.nn", name, __all__)
