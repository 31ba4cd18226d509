"""Modules of PyTorch in memory: gc.from_torch, and graphc as a backend of torch.compile."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):  # type: ignore[misc, name-defined]
    """Writes in place, to views, too; returns a nesting; takes a flag that is fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x: Any, double: bool = False) -> Any:
        y = torch.relu_(self.norm(self.conv(x)))
        y[:, 0] *= 2
        means = y.mean((2, 3)) + self.table
        return {"means": means * 2 if double else means, "rows": [y.sum(1), means.argmax(1)]}


def same(made: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(made), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_becomes_a_function_of_arrays() -> None:
    torch.manual_seed(0)
    module = Net().eval()
    sizes = {"x": {0: torch.export.Dim("batch", max=8)}, "double": None}
    model = gc.from_torch(module, torch.randn(2, 2, 4, 4), True, dynamic_shapes=sizes)
    for batch in (2, 5):
        x = torch.randn(batch, 2, 4, 4)
        made, wanted = model(x.numpy(), True), module(x, True)
        same(made["means"], wanted["means"])
        same(made["rows"][0], wanted["rows"][0])
        same(made["rows"][1], wanted["rows"][1])
    with pytest.raises(gc.GraphError, match="exported for"):
        model(np.zeros((9, 2, 4, 4), np.float32), True)
    assert "conv.weight" in model.bound({model.types[0].shape[0].symbols().pop(): 1}).names


def test_another_size_than_that_of_the_export_is_refused_with_the_way_out() -> None:
    module = nn.Linear(3, 2)
    with pytest.raises(gc.FeedError, match=r"\[5, 3\]") as refused:
        gc.from_torch(module, torch.zeros(4, 3))(np.zeros((5, 3), np.float32))
    assert 'dynamic_shapes=({0: torch.export.Dim("batch")},)' in str(refused.value)
    open_batch = ({0: torch.export.Dim("batch")},)
    model = gc.from_torch(module, torch.zeros(4, 3), dynamic_shapes=open_batch)
    for count in (5, 1):
        x = torch.ones(count, 3)
        same(model(x.numpy()), module(x))


def test_sizes_stay_open_in_views_and_arithmetic() -> None:
    class Halves(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            y = x.clone()
            y[:, 0] *= 2
            y[..., :2] += 1
            heads = y.view(batch, length, 2, width // 2).transpose(1, 2)
            return heads.reshape(batch * 2, -1) / length + torch.arange(length * 3)

    module = Halves()
    sizes = {"x": {0: torch.export.Dim("b"), 1: torch.export.Dim("t", min=2, max=64)}}
    model = gc.from_torch(module, torch.randn(3, 4, 6), dynamic_shapes=sizes)
    for batch, length in ((3, 4), (5, 7), (2, 2), (9, 3), (2, 64), (4, 11)):
        x = torch.randn(batch, length, 6)
        same(model(x.numpy()), module(x))
    assert (
        len({id(stage.built.stages) for stage in (*model._compilations.values(), *model._sized)})
        <= 3
    )
    with pytest.raises(gc.GraphError, match="exported for"):
        model(np.zeros((2, 65, 6), np.float32))


def test_what_torch_export_refuses_is_told() -> None:
    class Branches(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(gc.GraphError, match=r"torch\.export refuses Branches"):
        gc.from_torch(Branches(), torch.ones(2))


def test_a_module_differentiates_inside_a_function() -> None:
    linear = nn.Linear(3, 1)
    model = gc.from_torch(linear, torch.ones(2, 3))
    gradient = gc.compile(gc.grad(lambda x: np.sum(model(x))))(np.ones((2, 3), np.float32))
    same(gradient, linear.weight.expand(2, 3))


@pytest.mark.slow
class _Scaled(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def forward(self, x: Any, *, scale: float = 1.0, more: Any = None) -> Any:
        made = self.inner(x).tanh() * scale
        return made if more is None else made + more["bias"]


@pytest.mark.parametrize("strict", [False, True])
def test_arguments_with_keywords(strict: bool) -> None:
    module, x, bias = _Scaled().eval(), torch.randn(4, 3), torch.randn(2)
    kwargs = {"more": {"bias": bias}, "scale": 2.0}
    model = gc.from_torch(module, x, kwargs=kwargs, strict=strict)
    wanted = module(x, **kwargs)
    same(model(x.numpy(), scale=2.0, more={"bias": bias.numpy()}), wanted)
    same(model(x.numpy(), more={"bias": bias.numpy()}), wanted)
    same(model(x=x.numpy(), more_bias=bias.numpy()), wanted)  # names of the graph
    with pytest.raises(gc.FeedError, match="more nests otherwise"):
        model(x.numpy(), more=[bias.numpy(), bias.numpy()])


def test_a_functional_model_learns_as_the_module_does() -> None:
    torch.manual_seed(0)
    module, x, y = _Scaled(), torch.randn(6, 3), torch.randn(6, 2)
    shapes = {"x": {0: torch.export.Dim("batch")}}
    model = gc.from_torch(module, x[:3], functional=True, dynamic_shapes=shapes)
    assert (
        model.weights is not None and set(model.weights) == dict(module.named_parameters()).keys()
    )

    @gc.compile
    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            return ((model(weights, x) - y) ** 2).mean()

        value, gradients = gc.value_and_grad(loss)(weights)
        return value, {name: w - 0.1 * gradients[name] for name, w in weights.items()}

    weights = {name: w.copy() for name, w in model.weights.items()}
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        wanted = ((module(x) - y) ** 2).mean()
        wanted.backward()
        optimiser.step()
        value, weights = step(weights, x.numpy(), y.numpy())
        same(value, wanted)
    for name, weight in module.named_parameters():
        same(weights[name], weight)
    with pytest.raises(gc.FeedError, match="dict of weights first"):
        model(x.numpy())


def test_functions_are_exported_too() -> None:
    def turned(x: Any) -> Any:
        return x.sin().t()

    same(
        gc.from_torch(turned, torch.randn(2, 3))(np.eye(2, 3, dtype=np.float32)),
        turned(torch.eye(2, 3)),
    )
    with pytest.raises(gc.GraphError, match="not int"):
        gc.from_torch(3, torch.ones(2))


def test_blocks_of_autocast_become_casts() -> None:
    linear = nn.Linear(3, 2)

    def narrow(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x)

    x = torch.randn(4, 3)
    made = gc.from_torch(narrow, x)(x.numpy())
    assert str(made.dtype) == "bfloat16"
    np.testing.assert_allclose(made.astype(np.float32), narrow(x).float().detach(), atol=8e-3)


def test_torch_compile_trains_to_the_losses_of_eager() -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    eager = nn.Sequential(*layers, nn.Linear(36, 5))
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, backend=gc.torch_backend)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 5, (16,))
    losses: list[list[float]] = []
    for model, parameters in ((eager, eager.parameters()), (compiled, twin.parameters())):
        optimiser = torch.optim.SGD(parameters, 0.1, momentum=0.9)
        losses.append([])
        for _ in range(5):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    same(twin[1].running_var.numpy(), eager[1].running_var)


def test_dropout_of_a_compiled_module_draws_anew() -> None:
    torch.manual_seed(0)
    drop = torch.compile(nn.Dropout(0.5), backend=gc.torch_backend)
    one, two = drop(torch.ones(400)), drop(torch.ones(400))
    assert (one != two).any() and 0.3 < (one == 0).float().mean() < 0.7


def test_numbers_that_a_compiled_function_returns_stay_numbers() -> None:
    @torch.compile(backend=gc.torch_backend, dynamic=True)
    def scaled(x: Any) -> Any:
        return x * x.shape[0], x.shape[0] + 1, x

    for count in (2, 3):
        x = torch.ones(count)
        made, number, handed_back = scaled(x)
        assert made.tolist() == [count] * count and number == count + 1
        assert handed_back.tolist() == x.tolist()


class _Made(nn.Module):  # type: ignore[misc, name-defined]
    """What PyTorch makes of numbers and sizes that say no type."""

    def forward(self, x: Any) -> Any:
        n, scalar = x.shape[0], torch.ops.aten.scalar_tensor
        made = [scalar(n), scalar(3), scalar(True), scalar(n / 2), scalar(n, dtype=torch.int64)]
        made += [torch.full((2,), v) for v in (n, True, n / 2, n > 2)]
        made += [torch.arange(n), torch.arange(0, n / 2, 0.5), torch.where(x > 0, n, 0)]
        return [*made, torch.linspace(0, n, 3), torch.eye(n), x.new_full((2,), n), x.long() * n]


@pytest.mark.slow
def test_what_is_made_of_numbers_has_the_type_of_pytorch() -> None:
    module, shapes = _Made(), {"x": {0: torch.export.Dim("n")}}
    model = gc.from_torch(module, torch.ones(3), dynamic_shapes=shapes)
    compiled = torch.compile(module, backend=gc.torch_backend, dynamic=True)
    for count in (3, 5):
        x = torch.arange(1.0, count + 1)
        wanted = module(x)
        results = model(x.numpy()), [v.numpy() for v in compiled(x)]
        for made in results:
            assert [v.dtype for v in made] == [v.numpy().dtype for v in wanted]
            for one, other in zip(made, wanted):
                np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


@pytest.mark.slow
def test_an_image_that_is_resized_to_an_open_size_learns() -> None:
    def resized(x: Any) -> Any:
        return F.interpolate(F.avg_pool2d(x, 2), size=x.shape[-2:], mode="bilinear").square().mean()

    compiled = torch.compile(resized, backend=gc.torch_backend)
    torch.manual_seed(0)
    for shape in ((1, 2, 4, 4), (2, 2, 8, 8)):  # the second time with open sizes
        x = torch.randn(shape)
        (wanted,), (made,) = gradients(resized, x), gradients(compiled, x)
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-6)


def test_tensors_that_a_compiled_function_makes_of_numbers_are_held() -> None:
    @torch.compile(backend=gc.torch_backend)
    def appended(x: Any) -> Any:
        return torch.cat([torch.tensor([]), torch.tensor([7.0, 8.0]), x])

    assert appended(torch.ones(2)).tolist() == [7.0, 8.0, 1.0, 1.0]


def test_pytorch_finds_the_backend_by_its_name() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["graphc"].partition(":")
    assert getattr(importlib.import_module(module), name) is gc.torch_backend


@pytest.mark.slow
def test_torch_compile_takes_transformers_outside_of_training() -> None:
    torch.manual_seed(0)
    hidden = torch.ones(5, 5).triu(1).bool()
    for first in (False, True):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first)
        module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        compiled = torch.compile(module, backend=gc.torch_backend)
        x = torch.randn(3, 5, 8)
        with torch.no_grad():
            same(compiled(x), module(x))
            same(compiled(x, mask=hidden), module(x, mask=hidden))
    heads = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    compiled = torch.compile(heads, backend=gc.torch_backend)
    with torch.no_grad():
        for made, wanted in zip(compiled(x, x, x), heads(x, x, x)):
            same(made, wanted)


def gradients(function: Any, *values: Any) -> list[Any]:
    given = [v.clone().requires_grad_() for v in values]
    made = function(*given)
    (made * torch.linspace(0.5, 1.5, made.numel()).view(made.shape)).sum().backward()
    return [v.grad for v in given]


@pytest.mark.slow
def test_torch_compile_differentiates_factors_and_windows() -> None:
    torch.manual_seed(0)
    a, b, x = torch.randn(4, 4) + 2 * torch.eye(4), torch.randn(4, 3), torch.randn(2, 3, 7, 8)
    functions = (
        (torch.linalg.det, (a,)),
        (lambda v: torch.linalg.det(v.mT), (a,)),
        (lambda v: torch.linalg.slogdet(v)[1], (a,)),
        (torch.linalg.solve, (a, b)),
        (lambda v, w: torch.linalg.solve(v.mT, w), (a, b)),
        (torch.linalg.inv, (a,)),
        (lambda v: nn.functional.adaptive_max_pool2d(v, (3, 5)), (x,)),
        (lambda v: nn.functional.pad(v, (1, 2, 0, 1), mode="replicate"), (x,)),
        (lambda v: nn.functional.rrelu(v, 0.2, 0.4), (x,)),
        (lambda v, g: torch._weight_norm(v, g, 0), (b, b[:, :1])),
        (lambda v, g: torch._weight_norm(v, g, 1), (b, b[:1])),
    )
    for function, values in functions:
        compiled = torch.compile(function, backend=gc.torch_backend)
        for made, wanted in zip(gradients(compiled, *values), gradients(function, *values)):
            np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["none", "mean", "sum"])
def test_losses_of_several_labels_are_those_of_pytorch(how: str) -> None:
    """What PyTorch itself takes this loss apart into gives other numbers and gradients."""
    torch.manual_seed(3)
    labels = torch.tensor([[2, 0, -1, 1], [3, 3, -1, 0], [-1, 1, 2, 0], [0, 1, 2, 3]])
    x = torch.randn(4, 4)

    def loss(v: Any) -> Any:
        whole = nn.functional.multilabel_margin_loss(v, labels, reduction=how)
        return whole.sum() + nn.functional.multilabel_margin_loss(v[1], labels[0], reduction=how)

    compiled = torch.compile(loss, backend=gc.torch_backend)
    np.testing.assert_allclose(compiled(x), loss(x), rtol=1e-5)
    for made, wanted in zip(gradients(compiled, x), gradients(loss, x), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
class Strides(nn.Module):  # type: ignore[misc, name-defined]
    """Reads memory by distances, of arrays that lie otherwise than in rows, and writes to it."""

    def forward(self, x: Any) -> Any:
        turned, written = x.t()[1:], x.clone()
        written.as_strided((2, 2), (1, 3), 1).add_(10)
        return turned.as_strided((2, 2), (1, 3)), x.as_strided((2, 2), (1, 1), 1) + 1, written


def test_distances_in_memory_are_those_of_the_array_as_it_lies(tmp_path: Path) -> None:
    module, x = Strides(), torch.arange(12.0).view(4, 3)
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    results = (
        gc.load(tmp_path / "net.pt2").run([x.numpy()]),
        gc.from_torch(program)(x.numpy()),
        gc.from_torch(program.run_decompositions())(x.numpy()),
        torch.compile(module, backend=gc.torch_backend)(x),
    )
    for made in results:
        for own, wanted in zip(made, module(x)):
            assert np.asarray(own).tolist() == wanted.tolist()
    (made,) = gradients(torch.compile(_turned, backend=gc.torch_backend), x)
    assert made.tolist() == gradients(_turned, x)[0].tolist()


def _turned(x: Any) -> Any:
    return x.permute(1, 0).as_strided((2, 2), (1, 2), 1) ** 2


def test_writes_through_windows_and_diagonals_reach_the_array() -> None:
    class Writes(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            y = x.clone()
            y.unfold(1, 2, 2).mul_(3)
            y.diagonal().zero_()
            seen = y.diagonal(1)
            y += 1
            return y, seen

    x = torch.randn(4, 5)
    for made, wanted in zip(gc.from_torch(Writes(), x)(x.numpy()), Writes()(x)):
        same(made, wanted)


def learns(function: Any, *values: Any) -> None:
    """Compiled by graphc, a function and its gradients are those of PyTorch."""
    torch._dynamo.reset()
    found = []
    for call in (function, torch.compile(function, backend=gc.torch_backend)):
        given = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
        made = call(*given)
        made.square().sum().backward()
        found.append([made.detach(), *(v.grad for v in given if v.is_floating_point())])
    for wanted, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_bags_of_rows_learn() -> None:
    """Bags without rows, repeated rows, maxima that are equal."""
    torch.manual_seed(0)
    rows, starts = torch.tensor([1, 2, 4, 5, 4, 4]), torch.tensor([0, 2, 2, 5])
    for kind in (torch.float32, torch.float64):
        table, weights = torch.randn(7, 3, dtype=kind), torch.rand(6, dtype=kind)
        table[5] = table[4]
        for mode in ("sum", "mean", "max"):
            learns(lambda w, mode=mode: F.embedding_bag(rows, w, starts, mode=mode), table)
        learns(
            lambda w, s: F.embedding_bag(rows, w, starts, mode="sum", per_sample_weights=s),
            *(table, weights),
        )
        ends = torch.cat([starts, torch.tensor([6])])
        learns(
            lambda w, e=ends: F.embedding_bag(rows, w, e, mode="mean", include_last_offset=True),
            table,
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_distances_learn() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    for p in (1.0, 2.0, 3.0):
        learns(lambda a, b, p=p: torch.cdist(a, b, p), x, y)
        learns(lambda a, p=p: F.pdist(a, p), x)
        learns(lambda a, b, p=p: F.pairwise_distance(a[:4], b, p), x, y)


def test_a_module_of_operators_without_rules_is_decomposed() -> None:
    class Margins(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.renorm(x, 2, 0, 1.0), torch.block_diag(x, x)

    x = torch.randn(3, 4)
    made, wanted = gc.from_torch(Margins(), x)(x.numpy()), Margins()(x)
    same(made[0], wanted[0])
    same(made[1], wanted[1])


# ------------------------------------------------------------------------- nestings


class _Told(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return {"kind": "doubled", "made": (x * 2, None, [x + 1, 3]), "note": "y"}


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_nest_their_results_as_the_module_does(again: Any) -> None:
    x = torch.arange(3.0)
    made = again(gc.from_torch(_Told(), x))(x.numpy())
    assert made["kind"] == "doubled" and made["note"] == "y"
    doubled, nothing, (more, three) = made["made"]
    same(doubled, x * 2)
    same(more, x + 1)
    assert nothing is None and three == 3


def test_a_copy_of_a_functional_model_takes_weights() -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    model = copy.deepcopy(gc.from_torch(module, x, functional=True))
    same(model(model.weights, x.numpy()), module(x))


def test_texts_among_the_results_of_a_file(tmp_path: Path) -> None:
    x = torch.arange(3.0)
    torch.export.save(torch.export.export(_Told(), (x,)), tmp_path / "told.pt2")
    model = gc.load(tmp_path / "told.pt2")
    made = model(x.numpy())
    assert list(made) == ["kind", "made.0", "made.1", "made.2.0", "made.2.1", "note"]
    assert (made["kind"], made["note"]) == ("doubled", "y")
    same(made["made.2.0"], x + 1)
    assert "kind" not in model.result_names  # which are those of arrays


class _Nested(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, pair: Any = None, *, scale: Any = 1.0) -> Any:
        return {"made": x * scale - pair["b"], "rest": {"a": pair["a"][0] * 2}}


def test_arguments_are_told_apart_by_their_keys_and_names() -> None:
    """A dict is what its keys say, in whatever order they come."""
    x, a, b = torch.randn(3), torch.randn(2), torch.randn(3)
    pair, scale = {"b": b, "a": [a]}, torch.tensor(3.0)
    model = gc.from_torch(_Nested(), x, pair, kwargs={"scale": scale})
    wanted = _Nested()(x, pair, scale=scale)
    held = {"a": [a.numpy()], "b": b.numpy()}
    for made in (
        model(x.numpy(), held, scale=scale.numpy()),
        model(x.numpy(), pair=held, scale=scale.numpy()),
        model(pair=held, x=x.numpy(), scale=scale.numpy()),
    ):
        same(made["made"], wanted["made"])
        same(made["rest"]["a"], wanted["rest"]["a"])
    with pytest.raises(gc.FeedError, match="pair nests otherwise than that of the export"):
        model(x.numpy(), {"a": [a.numpy()]}, scale=scale.numpy())


def test_what_the_export_fixed_takes_no_other_value() -> None:
    class Scaled(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any = None, k: int = 2) -> Any:
            return x * k if y is None else x * k + y

    x = torch.randn(3)
    model, given = gc.from_torch(Scaled(), x, None, 3), x.numpy()
    for made in (model(given), model(given, None, 3), model(x=given, k=3), model(given, y=None)):
        same(made, 3 * x)
    for args, named in (
        ((), {"x": given, "k": 5}),
        ((given,), {"y": given}),
        ((given, given), {}),
        ((given, None, 3.0), {}),
    ):
        with pytest.raises(gc.FeedError, match=r"was fixed to (3|None) by the export"):
            model(*args, **named)


def test_results_of_a_saved_model_are_called_as_the_module_calls_them(tmp_path: Path) -> None:
    x, pair = torch.randn(3), {"a": [torch.randn(2)], "b": torch.randn(3)}
    model = gc.from_torch(_Nested(), x, pair)
    assert model.result_names == ("made", "rest.a")
    model.save(tmp_path / "model.gir")
    made = gc.load(tmp_path / "model.gir")(x.numpy(), pair["a"][0].numpy(), pair["b"].numpy())
    same(made["made"], _Nested()(x, pair)["made"])


class Branching(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "examples", "said", "hint"),
    [
        (Branching(), (torch.ones(3),), "elements of a tensor", "torch.where"),
        (nn.Linear(3, 2), (np.ones((4, 3), np.float32),), "not NumPy arrays", "torch.from_numpy"),
        (nn.Linear(3, 2), (), "missing a required argument: 'input'", "one tensor for each"),
        (nn.Linear(3, 2), (torch.ones(4, 5),), "must have same", r"here \(4, 5\)"),
    ],
)
def test_an_export_that_is_refused_says_what_to_do(
    module: Any, examples: tuple[Any, ...], said: str, hint: str
) -> None:
    with pytest.raises(gc.GraphError, match=said) as refused:
        gc.from_torch(module, *examples)
    assert re.search(hint, refused.value.hint or "")
    assert (refused.value.location is not None) == isinstance(module, Branching)
    if isinstance(module, Branching):
        name, line = refused.value.location or ("", 0)
        assert name.endswith("test_torch_live.py")
        assert line == Branching.forward.__code__.co_firstlineno + 1


def test_feeds_that_do_not_fit_say_what_to_do() -> None:
    model = gc.from_torch(nn.Linear(3, 2), torch.ones(4, 3))
    with pytest.raises(gc.FeedError, match=r"\.astype\('float32'\)"):
        model(np.ones((4, 3)))
    with pytest.raises(gc.FeedError, match="takes an array for each of"):
        model()


def test_elements_that_every_call_drops_are_told() -> None:
    module, x = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), torch.ones(4, 3)
    with pytest.warns(gc.GraphHint, match="same elements in every call"):
        gc.from_torch(module.train(), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gc.GraphHint)
        gc.from_torch(module.eval(), x)


def test_a_step_that_writes_into_weights_leaves_the_module_alone() -> None:
    module, x = nn.Linear(3, 2), torch.ones(4, 3)
    before = module.weight.detach().clone()
    model = gc.from_torch(module, x, functional=True)

    def step(weights: Any, x: Any) -> Any:
        grads = gc.grad(lambda w: (model(w, x) ** 2).mean())(weights)
        return {name: weights[name] - grads[name] for name in weights}

    gc.compile(step, donate=["weights"])(model.weights, x.numpy())
    assert torch.equal(module.weight, before)
