"""Every kind of layer beside Keras, where it is installed: what it saves gives its results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc

pytest.importorskip("h5py", reason="h5py reads models of Keras")
keras: Any = pytest.importorskip("keras", reason="Keras makes the models")
k = keras.layers
pytestmark = pytest.mark.slow

ACTIVATIONS = (
    *("relu", "sigmoid", "tanh", "gelu", "silu", "elu", "selu", "softplus", "mish", "linear"),
    *("exponential", "relu6", "hard_sigmoid", "softmax", "log_softmax", "leaky_relu", "softsign"),
    *("celu", "glu", "hard_silu", "hard_tanh", "hard_shrink", "soft_shrink", "tanh_shrink"),
    *("log_sigmoid", "sparse_plus", "sparse_sigmoid", "squareplus", "sparsemax"),
)
Layers = Callable[[], list[Any]]
SEQUENCES: dict[str, tuple[tuple[Any, ...], Layers]] = {
    "convolutions over time": (
        (10, 4),
        lambda: [
            k.Conv1D(6, 3, strides=2, padding="same", activation="relu"),
            k.Conv1D(4, 2, dilation_rate=2, padding="causal"),
            k.DepthwiseConv1D(3, depth_multiplier=2, padding="same"),
            k.SeparableConv1D(5, 3, padding="same"),
            k.Conv1DTranspose(4, 3, strides=2, padding="same"),
            k.MaxPooling1D(2),
            k.GlobalMaxPooling1D(),
        ],
    ),
    "convolutions of images": (
        (11, 13, 4),
        lambda: [
            k.Conv2D(8, 3, strides=2, padding="same"),
            k.Conv2D(8, (3, 1), groups=2, use_bias=False),
            k.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu"),
            k.SeparableConv2D(5, 2, depth_multiplier=2, use_bias=False),
            k.AveragePooling2D(2, strides=1, padding="same"),
            k.Flatten(),
            k.Dense(4),
        ],
    ),
    "transposed convolutions": (
        (5, 6, 3),
        lambda: [
            k.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu"),
            k.Conv2DTranspose(2, 3, strides=2),
            k.Conv2DTranspose(2, 2, strides=3, use_bias=False),
            k.Conv2DTranspose(2, 3, dilation_rate=2, padding="same"),
        ],
    ),
    "volumes": (
        (6, 7, 8, 2),
        lambda: [
            k.Conv3D(4, 3, padding="same", strides=2),
            k.Conv3DTranspose(3, 2, strides=2),
            k.ZeroPadding3D(1),
            k.Cropping3D((1, 0, 1)),
            k.UpSampling3D(2),
            k.MaxPooling3D(2),
            k.GlobalAveragePooling3D(keepdims=True),
        ],
    ),
    "channels first": (
        (2, 5, 6),
        lambda: [
            k.Conv2D(3, 3, data_format="channels_first"),
            k.MaxPooling2D(2, data_format="channels_first"),
            k.Flatten(data_format="channels_first"),
        ],
    ),
    "batch norms": (
        (5, 6, 3),
        lambda: [
            k.BatchNormalization(),
            k.BatchNormalization(center=False),
            k.BatchNormalization(scale=False),
            k.BatchNormalization(center=False, scale=False, axis=1),
        ],
    ),
    "norms": (
        (5, 6),
        lambda: [
            k.LayerNormalization(),
            k.LayerNormalization(scale=False),
            k.LayerNormalization(center=False, axis=[1, 2]),
            k.RMSNormalization(),
            k.GroupNormalization(3),
            k.GroupNormalization(-1, scale=False),
            k.UnitNormalization(),
            k.Rescaling(1 / 3, offset=-0.5),
            k.Normalization(mean=np.arange(6.0), variance=np.arange(1.0, 7.0)),
        ],
    ),
    "words": ((7,), lambda: [k.Embedding(20, 5), k.GlobalAveragePooling1D()]),
    "words with gaps": (
        (7,),
        lambda: [
            k.Embedding(20, 5, mask_zero=True),
            k.GRU(4, return_sequences=True, go_backwards=True),
            k.Bidirectional(k.LSTM(3)),
        ],
    ),
    "left-out steps": (
        (7, 3),
        lambda: [
            k.Masking(0.0),
            k.LSTM(4, return_sequences=True),
            k.LayerNormalization(),
            k.SimpleRNN(4, return_sequences=True, zero_output_for_mask=True),
        ],
    ),
    "recurrences": (
        (7, 3),
        lambda: [
            k.LSTM(5, go_backwards=True, return_sequences=True),
            k.LSTM(3, recurrent_activation="hard_sigmoid", use_bias=False, return_sequences=True),
            k.GRU(4, return_sequences=True),
            k.GRU(5, reset_after=False, return_sequences=True),
            k.SimpleRNN(4, return_sequences=True),
            k.RNN([k.GRUCell(5), k.LSTMCell(3)]),
        ],
    ),
    "both directions": (
        (7, 3),
        lambda: [
            k.Bidirectional(k.LSTM(4, return_sequences=True)),
            k.Bidirectional(k.GRU(5, return_sequences=True), merge_mode="sum"),
            k.Bidirectional(k.SimpleRNN(3, return_sequences=True), merge_mode="ave"),
            k.Bidirectional(k.LSTM(4), backward_layer=k.GRU(4, go_backwards=True)),
        ],
    ),
    "layers of every step": (
        (4, 9, 9, 2),
        lambda: [
            k.TimeDistributed(k.Conv2D(3, 3, activation="relu")),
            k.TimeDistributed(k.Flatten()),
            k.TimeDistributed(k.Dense(5)),
            k.LSTM(3),
        ],
    ),
    "shapes": (
        (4, 6),
        lambda: [
            k.Reshape((6, -1)),
            k.Permute((2, 1)),
            k.Flatten(),
            k.RepeatVector(3),
            k.ZeroPadding1D(2),
            k.Cropping1D((1, 2)),
            k.UpSampling1D(3),
            k.Dropout(0.5),
            k.EinsumDense("abc,cd->abd", output_shape=(None, 7), bias_axes="d"),
        ],
    ),
    "sizes of images": (
        (7, 6, 2),
        lambda: [
            k.ZeroPadding2D(((1, 2), (3, 0))),
            k.Cropping2D(((1, 0), (0, 2))),
            k.UpSampling2D((2, 1)),
            k.UpSampling2D((2, 3), interpolation="bilinear"),
            k.CenterCrop(12, 9),
            k.Resizing(8, 5),
            k.RandomFlip(),
            k.RandomContrast(0.1),
        ],
    ),
    "activations that are layers": (
        (5, 6),
        lambda: [
            k.PReLU(),
            k.ELU(0.7),
            k.LeakyReLU(0.1),
            k.ReLU(max_value=3, negative_slope=0.1, threshold=0.2),
            k.PReLU(shared_axes=[1]),
            k.Softmax(axis=1),
            k.Softmax(axis=[1, 2]),
        ],
    ),
}


def drawn(shape: tuple[Any, ...], kind: str, draw: np.random.Generator) -> Any:
    whole = (3, *(7 if n is None else n for n in shape))
    if "int" in kind:
        return draw.integers(0, 6, whole).astype(kind)
    if kind == "bool":
        return draw.random(whole) < 0.6
    return draw.standard_normal(whole).astype("f4")


def weighted(model: Any, draw: np.random.Generator) -> Any:
    """All weights at random: what starts as zeros or ones would hide where it goes."""
    for weight in model.weights:
        if "float" in str(weight.dtype) and "seed" not in weight.path:
            array = draw.standard_normal(weight.shape) * 0.4
            weight.assign(np.abs(array) + 0.5 if "variance" in weight.path else array)
    return model


def compare(model: Any, path: Path, arrays: list[Any] | None = None) -> None:
    draw = np.random.default_rng(0)
    given = arrays or [drawn(t.shape[1:], str(t.dtype), draw) for t in model.inputs]
    weighted(model, draw)
    made = keras.tree.flatten(model(given[0] if len(given) == 1 else given, training=False))
    model.save(path / "m.keras")
    found = gc.load(path / "m.keras")(*given)
    for mine, tensor in zip(found.values(), made, strict=True):
        wanted = keras.ops.convert_to_numpy(tensor)
        assert mine.dtype == wanted.dtype
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name: str, tmp_path: Path) -> None:
    shape, made = SEQUENCES[name]
    model = keras.Sequential([keras.Input(shape, dtype="int32" if "words" in name else None)])
    for each in made():
        model.add(each)
    x = drawn(shape, "float32", np.random.default_rng(1))
    x[1, 2:4] = x[2, 5:] = 0
    compare(model, tmp_path, [x] if "left-out" in name else None)


def test_activations(tmp_path: Path) -> None:
    x = keras.Input((6,))
    compare(keras.Model(x, [k.Activation(name)(x) for name in ACTIVATIONS]), tmp_path)


def test_merges(tmp_path: Path) -> None:
    a, b, c = keras.Input((4, 5)), keras.Input((5, 3)), keras.Input((5,))
    names = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average", "Concatenate")
    made = [getattr(k, name)()([a, k.Dense(5)(a)]) for name in names]
    made += [k.Add()([a, c]), k.Dot(axes=(2, 1))([a, b]), k.Dot(axes=1)([c, k.Dense(5)(c)])]
    made += [k.Dot(axes=-1, normalize=True)([c, k.Dense(5)(c)])]
    compare(keras.Model([a, b, c], made), tmp_path)


def test_attention(tmp_path: Path) -> None:
    x, y, mask = keras.Input((5, 8)), keras.Input((6, 8)), keras.Input((5, 5), dtype="bool")
    made = [
        k.MultiHeadAttention(2, 4)(x, x),
        k.MultiHeadAttention(2, 3, use_bias=False, output_shape=6)(x, y),
        k.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True),
        k.MultiHeadAttention(2, 4)(x, x, attention_mask=mask),
        *k.MultiHeadAttention(2, 4)(x, y, return_attention_scores=True),
        k.GroupQueryAttention(4, 4, 2)(x, y),
        k.Attention()([x, y]),
        k.Attention(use_scale=True)([x, y, y]),
        k.Attention(score_mode="concat", use_scale=True)([x, y]),
        k.AdditiveAttention()([x, y]),
    ]
    compare(keras.Model([x, y, mask], made), tmp_path)


def test_attention_to_words(tmp_path: Path) -> None:
    words = keras.Input((7,), dtype="int32")
    x = k.Embedding(20, 8, mask_zero=True)(words)
    x = k.Add()([x, k.MultiHeadAttention(2, 4)(x, x)])
    compare(keras.Model(words, k.GlobalAveragePooling1D()(x)), tmp_path)


def test_states(tmp_path: Path) -> None:
    x = keras.Input((5, 3))
    o, h, c = k.LSTM(4, return_state=True, return_sequences=True)(x)
    both = k.Bidirectional(k.LSTM(4, return_state=True, return_sequences=True))(x)
    again = k.LSTM(4)(o, initial_state=[h, c])
    compare(keras.Model(x, [o, h, c, again, *both]), tmp_path)


def test_models_within_models(tmp_path: Path) -> None:
    inner = keras.Sequential([keras.Input((4,)), k.Dense(5, "relu"), k.BatchNormalization()])
    i = keras.Input((5,))
    other = keras.Model(i, [k.Dense(2)(i), k.Dense(3)(i)])
    x, steps = keras.Input((4,)), keras.Input((3, 4))
    p, q = other(inner(x))
    r, s = other(inner(k.Dense(4)(x)))
    each = keras.Sequential([keras.Input((4,)), k.Dense(2, "tanh")])
    made = [k.Concatenate()([p, q]), r, s, k.TimeDistributed(each)(steps)]
    compare(keras.Model([x, steps], made), tmp_path)


def test_functions(tmp_path: Path) -> None:
    x, o = keras.Input((4, 5)), keras.ops
    y = k.Dense(5)(x) + x * 2.0
    made = [
        *(1 - x, -x, y[:, 1:, ::2], o.sum(x * x, axis=-1) ** 0.5, o.mean(y, 1, keepdims=True)),
        *(o.matmul(x, o.transpose(x, (0, 2, 1))), o.softmax(y), o.reshape(x, (-1, 20))),
        *(o.concatenate([x, y], axis=1), o.stack([x, y], axis=1), o.split(x, 2, axis=1)[1]),
        *(o.einsum("bij,bkj->bik", x, y), o.cast(x, "int32"), o.argmax(x, -1), o.exp(x) / 3),
        *(o.where(x > 0, x, 0.0), o.pad(x, ((0, 0), (1, 1), (0, 0))), o.clip(x, -1, 1)),
        *(o.one_hot(o.argmax(x, -1), 5), o.normalize(x), o.cumsum(x, 1), o.squeeze(y[:, :1], 1)),
        *(o.logical_and(x > 0, x < 1), o.layer_normalization(x), o.max(x, axis=(1, 2))),
        *(o.tile(x, (1, 2, 1)), o.repeat(x, 2, axis=1), o.flip(x, 1), o.swapaxes(x, 1, 2)),
    ]
    compare(keras.Model(x, made), tmp_path)


def test_sizes_that_are_open(tmp_path: Path) -> None:
    layers = [k.Conv1D(4, 3, padding="same"), k.MaxPooling1D(3, 1, padding="same"), k.LSTM(5)]
    compare(keras.Sequential([keras.Input((None, 3)), *layers]), tmp_path)


def test_halves(tmp_path: Path) -> None:
    layers = [k.Dense(4, "relu", dtype="mixed_float16"), k.Dense(2, dtype="bfloat16")]
    model = weighted(keras.Sequential([keras.Input((6,)), *layers]), np.random.default_rng(0))
    x = drawn((6,), "float32", np.random.default_rng(1))
    model.save(tmp_path / "m.keras")
    wanted = keras.ops.convert_to_numpy(keras.ops.cast(model(x), "float32"))
    (found,) = gc.load(tmp_path / "m.keras")(x).values()
    assert str(found.dtype) == "bfloat16"
    np.testing.assert_allclose(found.astype("f4"), wanted, rtol=0.03, atol=0.03)


def test_what_cannot_be_imported_is_told(tmp_path: Path) -> None:
    layers = [k.ConvLSTM2D(3, 3), k.Lambda(lambda x: x * 2)]
    keras.Sequential([keras.Input((4, 6, 6, 2)), *layers]).save(tmp_path / "m.keras")
    with pytest.raises(gc.GraphError) as told:
        gc.load(tmp_path / "m.keras")
    assert "ConvLSTM2D" in str(told.value) and "Lambda" in str(told.value)


def test_names_that_differ_by_numbers(tmp_path: Path) -> None:
    x = keras.Input((5, 4))
    a = k.LSTM(3, return_state=True, name="lstm")(x)
    compare(keras.Model(x, [*a, k.LSTM(2, name="lstm_1")(x)]), tmp_path)


def test_settings_of_functions(tmp_path: Path) -> None:
    x, n = keras.Input((4, 6)), keras.Input((4, 6), dtype="int32")
    o, a = keras.ops, keras.activations
    made = [
        *(a.relu(x, max_value=0.8), a.relu(x, negative_slope=0.1, max_value=0.8, threshold=0.2)),
        *(a.elu(x, alpha=0.4), a.leaky_relu(x, negative_slope=0.3), a.softmax(x, axis=1)),
        *(a.gelu(x), a.gelu(x, approximate=True), o.gelu(x), o.gelu(x, approximate=False)),
        *(o.sparsemax(x, axis=1), o.max(x, axis=1, initial=1.5), o.min(x, initial=-9.0)),
        *(o.cumsum(n, axis=1, dtype="float32"), o.cumsum(n, axis=2), o.sum(n, axis=-1)),
        *(o.where(x > 0, 1, 0), o.where(x > 0, 1, 0.5), o.where(x > 0, True, False)),
        *(o.where(x > 0, n, 7), o.where(x > 0, n, 0.5), o.prod(n, axis=1)),
        *(o.zeros_like(x), o.ones_like(n), o.zeros_like(x, dtype="int32")),
    ]
    compare(keras.Model([x, n], made), tmp_path)


OF_ANY = (
    *("sqrt", "exp", "sin", "absolute", "square", "floor", "ceil", "logical_not", "isnan", "max"),
    *("relu", "leaky_relu", "mean", "var", "min", "any", "all", "sum", "prod", "argmax", "cumsum"),
)


OF_TWO = (
    *("add", "subtract", "multiply", "maximum", "mod", "floor_divide", "true_divide", "arctan2"),
    *("greater", "logical_and", "power", "matmul"),
)


def in_its_types(function: Any, *pairs: Any) -> list[Any]:
    """What a function makes of (input, array) each, if Keras computes it and in the type that it
    announces; not every backend does."""
    with suppress(Exception):
        made = function(*(x for x, _ in pairs))
        found = function(*(keras.ops.convert_to_tensor(a) for _, a in pairs))
        return [made] if keras.backend.standardize_dtype(found.dtype) == made.dtype else []
    return []


def compare_types(given: list[Any], made: list[Any], arrays: list[Any], path: Path) -> None:
    model = keras.Model(given, made)
    model.save(path / "m.keras")
    for mine, tensor in zip(gc.load(path / "m.keras")(*arrays).values(), model(arrays)):
        wanted = keras.ops.convert_to_numpy(tensor)
        assert mine.dtype == wanted.dtype
        np.testing.assert_allclose(mine, wanted, rtol=1e-3)


def test_functions_of_every_type(tmp_path: Path) -> None:
    """Those that Keras has; of reals of its own widths, sums of 32 bits at least."""
    kinds = ("bool", "uint8", "int8", "int16", "int32", "float16")
    given = [keras.Input((3,), dtype=kind) for kind in kinds]
    arrays = [np.array([[0, 1, 3], [2, 1, 1]]).astype(kind) for kind in kinds]
    functions = [getattr(keras.ops, name) for name in OF_ANY]
    totals = ("sum", "prod")  # of bytes: u32, but i32 where the backend is PyTorch
    made = [
        m
        for function in functions
        for x, array in zip(given, arrays)
        if not (x.dtype == "uint8" and function.__name__ in totals)
        for m in in_its_types(function, (x, array))
    ]
    assert len(made) > 80
    compare_types(given, made, arrays, tmp_path)


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_types(name: str, tmp_path: Path) -> None:
    """Of reals among whole numbers their width, of whole numbers 32 bits where reals come out."""
    kinds = ("bool", "uint8", "int16", "int32", "float16", "float32")
    given = [keras.Input((2,), dtype=kind, batch_size=2) for kind in kinds]
    arrays = [np.array([[3, 1], [1, 2]]).astype(kind) for kind in kinds]
    function, pairs = getattr(keras.ops, name), [*zip(given, arrays)]
    made = [m for a in pairs for b in pairs for m in in_its_types(function, a, b)]
    for number in (2, 2.5) if name != "matmul" else ():
        made += [m for a in pairs for m in in_its_types(lambda x: function(x, number), a)]  # noqa: B023
    assert len(made) > 20
    compare_types(given, made, arrays, tmp_path)


WORDS = np.array([[1, 2, 3, 0, 0], [4, 0, 5, 0, 1], [0, 0, 0, 0, 0]], np.int32)


def embedded(width: int = 4, masks: bool = True) -> tuple[Any, Any]:
    words = keras.Input((5,), dtype="int32")
    return words, k.Embedding(6, width, mask_zero=masks)(words)


def test_states_of_an_encoder(tmp_path: Path) -> None:
    """A recurrence that is given states is not given the mask, but its result has it."""
    i, x = embedded()
    j, y = embedded()
    _, *states = k.LSTM(3, return_state=True)(x)
    made = k.LSTM(3, return_sequences=True)(y, initial_state=states)
    both = k.Bidirectional(k.GRU(3, return_sequences=True))(y, initial_state=[states[0]] * 2)
    outputs = [made, k.GRU(2)(made), k.GRU(2)(both), k.Dense(2)(made)]
    compare(keras.Model([i, j], outputs), tmp_path, [WORDS, WORDS[::-1].copy()])


def test_attention_that_sees_nothing(tmp_path: Path) -> None:
    """Rows without a key are 0 where shares are dropped or returned, else the mean."""
    words = keras.Input((5,), dtype="int32")
    made = []
    for drops in (0.0, 0.1):
        for told in ({}, {"use_causal_mask": True}, {"return_attention_scores": True}):
            x, y = (k.Embedding(6, 8, mask_zero=True)(words) for _ in range(2))  # heads take masks
            found = [k.MultiHeadAttention(2, 3, dropout=drops)(x, x, **told)]
            found += [k.GroupQueryAttention(3, 4, 2, dropout=drops)(y, y, **told)]
            made += [p for part in found for p in (part if isinstance(part, tuple) else [part])]
    compare(keras.Model(words, made), tmp_path, [WORDS])


def test_every_step_with_a_mask(tmp_path: Path) -> None:
    i = keras.Input((3, 5), dtype="int32")
    x = k.Embedding(6, 4, mask_zero=True)(i)
    steps = [k.LSTM(3), k.Bidirectional(k.GRU(2)), k.GlobalAveragePooling1D()]
    made = [k.TimeDistributed(layer)(x) for layer in steps]
    words = np.stack([WORDS[[0, 1, 0]], WORDS[[1, 1, 0]]])
    compare(keras.Model(i, made), tmp_path, [words])
    x = keras.Input((5, 4))
    made = [k.LSTM(2)(k.TimeDistributed(k.Dense(3))(k.Masking()(x)))]
    gaps = np.random.default_rng(3).standard_normal((3, 5, 4)).astype("f4") * (WORDS > 0)[..., None]
    compare(keras.Model(x, made), tmp_path, [gaps])
    layers = [k.Masking(), k.TimeDistributed(k.LSTM(3))]
    gaps = np.stack([gaps, gaps[:, ::-1]])
    compare(keras.Sequential([keras.Input((3, 5, 4)), *layers]), tmp_path, [gaps])


def test_merges_of_what_does_not_count(tmp_path: Path) -> None:
    i, x = embedded()
    j, y = embedded()
    z = k.Embedding(6, 4)(j)
    names = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average", "Concatenate")
    made = [getattr(k, name)()(pair) for name in names for pair in ([x, y], [x, z], [z, y])]
    made += [k.Multiply()([x, y, z]), k.Maximum()([z, x, y]), k.Minimum()([x, y, x])]
    made += [k.LSTM(2)(m) for m in made] + [k.LSTM(2)(k.Concatenate(axis=1)([x, y, z]))]
    made += [k.BatchNormalization()(x)]
    compare(keras.Model([i, j], made), tmp_path, [WORDS, WORDS[::-1].copy()])


def test_a_stack_of_cells_in_both_directions(tmp_path: Path) -> None:
    cells = [k.GRUCell(3), k.LSTMCell(4)]
    layers = [k.Bidirectional(k.RNN(cells, return_sequences=True)), k.Bidirectional(k.RNN(cells))]
    compare(keras.Sequential([keras.Input((5, 4)), *layers[:1]]), tmp_path)
    compare(keras.Sequential([keras.Input((5, 4)), *layers[1:]]), tmp_path)


def test_whole_numbers_are_resized(tmp_path: Path) -> None:
    layers = [k.Resizing(8, 3, interpolation=kind) for kind in ("bilinear", "nearest")]
    x = keras.Input((4, 6, 3), dtype="uint8")
    model = keras.Model(x, [layer(x) for layer in layers])
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype("u1")
    compare(model, tmp_path, [images])


def test_a_sequence_that_was_called(tmp_path: Path) -> None:
    model = keras.Sequential([k.Dense(3), k.ReLU()])
    model(np.zeros((2, 4), "f4"))
    compare(model, tmp_path, [drawn((4,), "float32", np.random.default_rng(1))])


def test_classes_of_ones_own(tmp_path: Path) -> None:
    register = keras.saving.register_keras_serializable("mine")
    cell = register(type("GRUCell", (k.GRUCell,), {}))
    lstm = register(type("LSTM", (k.LSTM,), {}))
    relu = register(type("ReLU", (k.ReLU,), {}))
    whole = register(type("Sequential", (keras.Sequential,), {}))
    unregistered = type("Dense", (k.Dense,), {"__module__": "elsewhere"})
    layers = [k.RNN(cell(2)), k.RNN([k.GRUCell(2), cell(2)]), k.Bidirectional(lstm(2))]
    layers += [k.Dense(2, activation=relu()), k.TimeDistributed(unregistered(2)), unregistered(2)]
    models = [keras.Sequential([keras.Input((3, 2)), layer]) for layer in layers]
    models += [whole([keras.Input((3,)), k.Dense(2)])]
    models += [keras.Sequential([keras.Input((3,)), whole([keras.Input((3,)), k.Dense(2)])])]
    for model in models:
        model.save(tmp_path / "m.keras")
        with pytest.raises(gc.GraphError, match="class"):
            gc.load(tmp_path / "m.keras")
