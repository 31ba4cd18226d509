"""`gc.nn`: layers, initialisers, losses and metrics over pytrees of parameters.

    model = gc.nn.Sequential(gc.nn.Dense(200, 100), gc.nn.relu, gc.nn.Dense(100, 3))
    params = model.init(gc.random.key(0))
    loss = gc.nn.mse(model(params, x), y)

A layer holds sizes and options; its parameters are a pytree that the user holds.  Activations and
losses are those of gc.*, under the names people look for here.
"""

from graphc import binary_cross_entropy as binary_cross_entropy
from graphc import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from graphc import cross_entropy as cross_entropy
from graphc import elu as elu
from graphc import gelu as gelu
from graphc import huber as huber
from graphc import kl_divergence as kl_divergence
from graphc import leaky_relu as leaky_relu
from graphc import log_softmax as log_softmax
from graphc import mae as mae
from graphc import mish as mish
from graphc import mse as mse
from graphc import nll as nll
from graphc import relu as relu
from graphc import selu as selu
from graphc import sigmoid as sigmoid
from graphc import silu as silu
from graphc import softmax as softmax
from graphc import softplus as softplus
from graphc import tanh as tanh
from graphc.learn.nn import init as init
from graphc.learn.nn import layouts as layouts
from graphc.learn.nn.attention import MultiHeadAttention as MultiHeadAttention
from graphc.learn.nn.keras import keras_weights as keras_weights
from graphc.learn.nn.keras import load_keras as load_keras
from graphc.learn.nn.layer import Layer as Layer
from graphc.learn.nn.layer import Residual as Residual
from graphc.learn.nn.layer import Sequential as Sequential
from graphc.learn.nn.layers import AvgPool as AvgPool
from graphc.learn.nn.layers import Conv as Conv
from graphc.learn.nn.layers import Dense as Dense
from graphc.learn.nn.layers import Dropout as Dropout
from graphc.learn.nn.layers import Embedding as Embedding
from graphc.learn.nn.layers import Flatten as Flatten
from graphc.learn.nn.layers import MaxPool as MaxPool
from graphc.learn.nn.layers import dropout as dropout
from graphc.learn.nn.metrics import accuracy as accuracy
from graphc.learn.nn.metrics import binary_accuracy as binary_accuracy
from graphc.learn.nn.norms import BatchNorm as BatchNorm
from graphc.learn.nn.norms import LayerNorm as LayerNorm
from graphc.learn.nn.norms import RMSNorm as RMSNorm
from graphc.learn.nn.recurrent import GRU as GRU
from graphc.learn.nn.recurrent import LSTM as LSTM
from graphc.learn.nn.state_dict import load_state_dict as load_state_dict
from graphc.learn.nn.state_dict import state_dict as state_dict
from graphc.learn.trees import parameter_count as parameter_count

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
