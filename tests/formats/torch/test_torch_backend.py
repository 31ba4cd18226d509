"""graphc as a backend of torch.compile: parts that PyTorch runs, memory of results, open sizes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.base.record import replace
from graphc.formats.model import ImportedModel
from graphc.formats.torch import parts
from graphc.formats.torch.layout import dense_order, inverse
from graphc.formats.torch.table import RULES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_told", set())
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=gc.torch_backend, **options)


def gradients(function: Callable[..., Any], *values: Any) -> list[Any]:
    """Results and gradients of a function of tensors."""
    given = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
    made = function(*given)
    made.square().sum().backward()
    return [made.detach(), *(v.grad for v in given if v.is_floating_point())]


def same(made: Any, wanted: Any) -> None:
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------- what PyTorch runs


@pytest.fixture(scope="module")
def twice() -> Iterator[Any]:
    """An operator of a library that graphc knows nothing of, with its gradient."""
    library = torch.library.Library("graphc_test", "FRAGMENT")

    @torch.library.custom_op("graphc_test::twice", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    operator.register_fake(lambda x: torch.empty_like(x))
    operator.register_autograd(lambda _, gradient: gradient * 2)
    yield operator
    library._destroy()


def test_operators_of_other_libraries_run_between_programs(twice: Any) -> None:
    def function(x: Any) -> Any:
        y = twice(x.sin())
        return twice(y.cos() + x) * y

    x = torch.randn(3, 4)
    with pytest.warns(gc.GraphHint, match=r"PyTorch runs.*graphc_test\.twice.*no rule"):
        made = gradients(compiled(function, fullgraph=True), x)
    for one, other in zip(made, gradients(function, x), strict=True):
        same(one, other)


@pytest.mark.filterwarnings("ignore:PyTorch runs")
def test_nothing_but_operators_of_other_libraries(twice: Any) -> None:
    same(compiled(lambda x: (twice(x), 3))(torch.ones(2)), (torch.full((2,), 2.0), 3))


@pytest.mark.filterwarnings("ignore:PyTorch runs")
def test_what_a_dropout_drops_is_dropped_again_when_it_is_computed_again() -> None:
    def function(x: Any) -> Any:
        again = torch.utils.checkpoint.checkpoint
        return again(lambda x: F.dropout(x.sin(), 0.5) + x * 0, x, use_reentrant=False)

    x = torch.full((1000,), 0.5, requires_grad=True)
    y = compiled(function)(x)
    y.sum().backward()
    kept = y != 0
    assert 0.4 < kept.float().mean() < 0.6
    same(x.grad, kept * 2 * x.detach().cos())


@pytest.mark.filterwarnings("ignore:PyTorch runs")
def test_gradients_that_are_sparse_stay_sparse() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    compiled(table)(torch.tensor([1, 3, 1])).square().sum().backward()
    assert table.weight.grad.is_sparse
    wanted = torch.zeros(10, 4).index_add(0, torch.tensor([1, 3, 1]), 2 * table.weight[[1, 3, 1]])
    same(table.weight.grad.to_dense(), wanted)


def test_what_a_rule_refuses_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(x: Any) -> Any:
        raise gc.GraphError("not today")

    monkeypatch.setitem(RULES, "aten.sin", replace(RULES["aten.sin"], function=rule))
    x = torch.randn(5)
    with pytest.warns(gc.GraphHint, match="not today"):
        made = compiled(lambda x: (x + 1).sin().cos().sin())(x)
    same(made, (x + 1).sin().cos().sin())


def test_results_that_a_rule_leaves_out_come_from_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that leaves out what only gradients read serves calls without them."""
    name = "aten._embedding_bag"
    whole = RULES[name].function

    def rule(weight: Any, indices: Any, offsets: Any, **rest: Any) -> Any:
        return whole(weight, indices, offsets, **rest)[0], None, None, None

    monkeypatch.setitem(RULES, name, replace(RULES[name], function=rule))
    bag, rows = nn.EmbeddingBag(10, 4), torch.tensor([[1, 2], [4, 4]])
    with torch.no_grad():
        same(compiled(bag)(rows), bag(rows))
    with pytest.warns(gc.GraphHint, match="gradient"):
        compiled(bag)(rows).sum().backward()
    made, bag.weight.grad = bag.weight.grad, None
    bag(rows).sum().backward()
    same(made, bag.weight.grad)


# ------------------------------------------------------------------------- memory of results


def test_the_order_in_which_a_tensor_is_dense() -> None:
    draw = random.Random(0)
    for _ in range(500):
        sizes = [draw.choice([0, 1, 2, 3]) for _ in range(draw.randrange(5))]
        axes = list(range(len(sizes)))
        draw.shuffle(axes)
        tensor = torch.empty(sizes).permute(axes)
        if sizes and draw.random() < 0.4:
            tensor = tensor.narrow(0, 0, max(0, tensor.shape[0] - 1))
        if draw.random() < 0.2:
            tensor = tensor[None].expand(2, *tensor.shape)
        order = dense_order(tensor)
        if order is None:
            assert not torch.ops.aten.is_non_overlapping_and_dense(tensor)
        else:
            assert tensor.permute(order).is_contiguous()
            assert [order[axis] for axis in inverse(order)] == sorted(order)
            assert order == tuple(sorted(order)) or not tensor.is_contiguous()


def test_results_lie_in_memory_as_those_of_pytorch() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    image = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    turned = torch.randn(3, 4, 5).permute(2, 0, 1)
    for function, x in (
        (net, image),
        (lambda x: x.sin() + 1, turned),
        (lambda x: (x + 1).transpose(0, 1)[1:], turned),
        (lambda x: (x.sum(1, keepdim=True) * 2).expand_as(x), turned),
        (lambda x: x.mul(2).narrow(2, 1, 2).split(2)[1], turned),
    ):
        made, wanted = compiled(function)(x), function(x)
        same(made, wanted)
        assert made.stride() == wanted.stride()


def test_results_that_are_views_of_one_another_share_their_memory() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y[1:], y.t(), y.split(2)[1], x[:, 1], x

    for grad in (False, True):
        x = torch.randn(4, 4)
        base = x.clone().requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            y, rows, turned, half, column, whole = compiled(function)(base)
        with torch.no_grad():
            y.mul_(3)
            same(rows, 3 * (x + 1)[1:])
            same(turned, 3 * (x + 1).t())
            same(half, 3 * (x + 1)[2:])
            assert whole is base and column.data_ptr() == base[:, 1].data_ptr()


def test_gradients_do_not_share_memory() -> None:
    def function(a: Any, b: Any) -> Any:
        return (a.view(6) + b).sum()

    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(6, requires_grad=True)
    call = compiled(function)
    for _ in range(3):
        call(a, b).backward()
    a.grad.add_(1)
    assert b.grad.tolist() == [3.0] * 6


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1)])
def test_one_gradient_of_two_leaves_is_added_to_each_of_them(order: tuple[int, ...]) -> None:
    """PyTorch keeps a gradient that it alone holds, and adds to it in place."""

    def leaf() -> Any:
        return torch.randn(2, 3, 4, 5).permute(order).contiguous().permute(inverse(order))

    w = leaf()
    for function in (lambda a, b: (a + b) * w, lambda a, b: (a + b).relu()):
        a, b = leaf().requires_grad_(), leaf().requires_grad_()
        wanted = [x.detach().requires_grad_() for x in (a, b)]
        call = compiled(function)
        for _ in range(3):
            call(a, b).sum().backward()
            function(*wanted).sum().backward()
        for made, x in zip((a, b), wanted):
            same(made.grad, x.grad)
            assert made.grad.stride() == x.grad.stride()
        assert a.grad.data_ptr() != b.grad.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_results_that_are_new_are_no_views(dtype: Any, order: tuple[int, ...]) -> None:
    x = torch.arange(24).to(dtype).view(2, 3, 4).permute(order)
    made = compiled(lambda x: x + x)(x)
    made.detach_().unsqueeze_(0)
    same(made, (x + x)[None])


def test_arguments_that_are_conjugated_or_negated_views() -> None:
    x = torch.randn(4, dtype=torch.complex64).conj()
    same(compiled(lambda x: x * 2 + x.imag)(x), x * 2 + x.imag)
    same(compiled(lambda x: x * 2)(x.imag), x.imag * 2)


# ------------------------------------------------------------------------- open sizes


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a program was compiled, for its sizes and for all."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        whole = getattr(ImportedModel, name)

        def method(self: Any, *args: Any) -> Any:
            counts[name] += 1
            return whole(self, *args)

        monkeypatch.setattr(ImportedModel, name, method)

    counted("_compile")
    counted("_build_open")
    return counts


def test_one_program_serves_all_sizes(compilations: Counter[str]) -> None:
    net = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 2))

    def function(x: Any) -> Any:
        return net(x).softmax(-1).sum(0) / x.shape[0], x.shape[0] + 1, x.flatten(0, 1).t()

    call = compiled(lambda x: function(x), dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 3), (3, 7), (5, 4), (9, 2), (4, 6)):
            x = torch.randn(batch, length, 8)
            made, wanted = call(x), function(x)
            same(made, wanted)
            assert made[2].stride() == wanted[2].stride()
    assert compilations == {"_compile": 1, "_build_open": 1}


@pytest.mark.slow
def test_one_backward_program_serves_all_sizes(compilations: Counter[str]) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def function(x: Any) -> Any:
        return attention(x, x, x)[0] * x.shape[1]

    call = compiled(function, dynamic=True)
    for batch, length in ((2, 3), (3, 7), (5, 4), (7, 5)):
        x = torch.randn(batch, length, 8)
        for one, other in zip(gradients(call, x), gradients(function, x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert compilations == {"_compile": 2, "_build_open": 2}


def test_one_program_serves_all_whole_numbers(compilations: Counter[str]) -> None:
    call = compiled(lambda x, step: x * step + x.new_full((2,), step))
    x = torch.ones(2)
    for step in (2, 3, 4, 5, 11, 0, 1000000, -3):
        same(call(x, step), x * step + step)
    assert sum(compilations.values()) <= 6  # 0 and -3 among them


# ------------------------------------------------------------------------- optimisers


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, 1e-2),
        pytest.param(lambda p: torch.optim.AdamW(p, 1e-2, foreach=True), marks=pytest.mark.slow),
        pytest.param(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), marks=pytest.mark.slow),
        pytest.param(lambda p: torch.optim.RMSprop(p, 1e-2), marks=pytest.mark.slow),
        pytest.param(lambda p: torch.optim.Adadelta(p), marks=pytest.mark.slow),
        pytest.param(lambda p: torch.optim.NAdam(p, 1e-2), marks=pytest.mark.slow),
    ],
)
def test_steps_of_optimisers_compile(make: Callable[[Any], Any]) -> None:
    found = []
    for wrap in (lambda step: step, compiled):
        torch.manual_seed(0)
        weights = [torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)]
        optimiser = make(weights)
        step = wrap(optimiser.step)
        for k in range(4):
            optimiser.zero_grad()
            ((weights[0].sum(0) * weights[1] - k) ** 2).sum().backward()
            step()
        found.append([w.detach() for w in weights])
    same(*found)


def test_operators_on_lists_of_tensors() -> None:
    x, y = [torch.randn(3), torch.randn(2, 2)], [torch.rand(3), torch.rand(2, 2)]

    def function(x: Any, y: Any) -> Any:
        made = [
            torch._foreach_add(x, y, alpha=2), torch._foreach_add(x, [1.5, 2]),
            torch._foreach_mul(x, 3), torch._foreach_mul(x, torch.tensor(2.0)),
            torch._foreach_pow(2.0, y), torch._foreach_addcmul(x, y, y, [2.0, 3.0]),
            torch._foreach_addcdiv(x, x, y, [2.0, 3.0]),
            torch._foreach_lerp(x, y, 0.7), torch._foreach_lerp(x, y, y),
            torch._foreach_norm(x), torch._foreach_norm(x, 1),
            torch._foreach_clamp_max(x, y), torch._foreach_sqrt(y),
        ]  # fmt: skip
        torch._foreach_mul_(x, 2)
        torch._foreach_copy_(y, x)
        return made, x, y

    copies = [v.clone() for v in x], [v.clone() for v in y]
    same(compiled(function, fullgraph=True)(x, y), function(*copies))


# ------------------------------------------------------------------------- types


class _Made(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        made = [torch.ones(3), torch.arange(3.0), torch.linspace(0, 1, 3), torch.full((3,), 0.1)]
        third = x / 3
        return [*made, third, torch.zeros(3) + 1j, x * 0.1, torch.fft.fft(x), torch.rand(3) * 0]


def test_the_default_type_of_floats_is_that_of_pytorch(tmp_path: Path) -> None:
    x, before = torch.arange(3), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        wanted = _Made()(x)
        made = compiled(_Made())(x)
        model = gc.from_torch(_Made(), x)
        torch.export.save(torch.export.export(_Made(), (x,)), tmp_path / "made.pt2")
    finally:
        torch.set_default_dtype(before)
    torch.testing.assert_close(made, wanted, rtol=1e-12, atol=0)
    read = gc.load(tmp_path / "made.pt2")(x.numpy()).values()
    for results in (model(x.numpy()), read):
        for one, other in zip(results, wanted, strict=True):
            assert one.dtype == other.numpy().dtype
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_even_steps_have_the_bits_of_pytorch() -> None:
    draw = random.Random(0)
    ends = [(draw.uniform(-9, 9), draw.uniform(-9, 9), draw.randrange(1, 70)) for _ in range(50)]

    def function(x: Any) -> Any:
        return [torch.linspace(*given) + x for given in ends]

    for made, wanted in zip(compiled(function)(torch.zeros(())), function(torch.zeros(()))):
        assert made.tolist() == wanted.tolist()


# ------------------------------------------------------------------------- forms of torch.compile


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes_of_pytorch_are_taken(mode: str) -> None:
    x = torch.randn(3)
    same(compiled(torch.sin, mode=mode)(x), x.sin())


def test_a_mode_that_pytorch_has_not_is_refused() -> None:
    with pytest.raises(gc.GraphError, match="no mode 'fastest'"):
        gc.torch_backend(None, (), mode="fastest")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_ragged_tensors(compilations: Counter[str]) -> None:
    layer = nn.Linear(3, 2)
    function = compiled(lambda x: layer(x).relu(), dynamic=True)
    for lengths in ((2, 4), (3, 6), (5, 7)):
        rows = [torch.randn(n, 3) for n in lengths]
        made = function(torch.nested.nested_tensor(rows, layout=torch.jagged))
        for one, row in zip(made.unbind(), rows, strict=True):
            same(one, layer(row).relu())
    assert sum(compilations.values()) <= 2


def test_what_a_backward_pass_can_make_again_is_not_kept() -> None:
    """Of a chain of cheap functions its argument and its result wait for the backward pass."""
    kept: list[Any] = []

    def pack(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor

    x = torch.randn(5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compiled(lambda x: x.sin().exp().cos().tanh())(x)
    y.sum().backward()
    assert {tensor.data_ptr() for tensor in kept} <= {x.data_ptr(), y.data_ptr()}
    one = x.detach().requires_grad_()
    one.sin().exp().cos().tanh().sum().backward()
    same(x.grad, one.grad)


def test_a_graph_of_one_size_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    whole = ImportedModel.run

    def run(self: Any, values: Any) -> Any:
        calls.append(len(values))
        return whole(self, values)

    monkeypatch.setattr(ImportedModel, "run", run)
    function = compiled(lambda x, y: (x @ y, F.dropout(x, 0.5)), dynamic=False)
    for k in range(4):
        x, y = torch.randn(3, 4), torch.randn(5, 4).mT if k == 2 else torch.randn(4, 5)
        made, dropped = function(x, y)
        same(made, x @ y)
        same(dropped, (dropped != 0) * x * 2)
    assert len(calls) == 2  # one for each layout of y: that of k == 2 is a graph of its own


def test_a_graph_whose_data_decide_sizes_is_looked_for_in_every_call() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = compiled(lambda x: x[x > 0] * 2, dynamic=False)
        for _ in range(4):
            x = torch.randn(9)
            same(function(x), x[x > 0] * 2)


# ------------------------------------------------------------------------- changes in place


class Stateful(nn.Module):
    """A body reads what the module holds, and gives what then changes it in place."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("held", torch.arange(6.0).reshape(2, 3) / 3)
        self.weight = nn.Parameter(torch.arange(6.0).reshape(3, 2))
        self.body = body

    def forward(self, x: Any) -> Any:
        made, change = self.body(self, x)
        change()
        return made


def after_two_steps(form: str, compiling: Callable[..., Any]) -> list[Any]:
    """Results and gradients of two steps, and what the module holds then."""
    module = Stateful(CHANGES[form])
    function = compiling(module)
    x = torch.linspace(0.5, 2, 6).reshape(3, 2).requires_grad_()
    found = []
    for _ in range(2):
        found.append(made := function(x))
        made.sum().backward()
    weight = module.weight.grad
    gradient = torch.zeros_like(module.weight) if weight is None else weight
    return [*(made.detach() for made in found), x.grad, gradient, module.held, module.weight.data]


def waves(x: Any) -> Any:
    return (x + 1).sin()


def without_gradient(change: Callable[[], Any]) -> Callable[[], Any]:
    return torch.no_grad()(change)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda m, x: (x * waves(m.held).t(), lambda: m.held.add_(1)),
    "no_grad": lambda m, x: (x * waves(m.held.t()), without_gradient(lambda: m.held.add_(1))),
    "data": lambda m, x: (x * waves(m.held.t()), lambda: m.held.data.add_(1)),
    "detached": lambda m, x: (x * waves(m.held.t()), lambda: m.held.detach().add_(1)),
    "through a view": lambda m, x: (x * waves(m.held.t()), lambda: m.held.t().add_(1)),
    "flat": lambda m, x: (x.view(-1) * waves(m.held.view(-1)), lambda: m.held.add_(1)),
    "a row": lambda m, x: (
        x[:, 0] * waves(m.held[0]) * (m.held[0] * 2).cos(),
        lambda: m.held.add_(1),
    ),
    "another order": lambda m, x: (x * waves(m.held.t().contiguous()), lambda: m.held.add_(1)),
    "a product": lambda m, x: (x @ (m.held + 1), lambda: m.held.data.add_(1)),
    "a mask": lambda m, x: (torch.where(m.held.t() > 0.5, x, 2 * x) ** 2, lambda: m.held.zero_()),
    "an average": lambda m, x: (
        torch.softmax(-((x - m.held.t()) ** 2), -1) * m.held.t().tanh(),
        without_gradient(lambda: m.held.mul_(0.9).add_(x.detach().t(), alpha=0.1)),
    ),
    "a copy": lambda m, x: (
        x * (m.held.t() * m.weight.detach()).tanh().exp(),
        lambda: m.held.copy_((m.held * m.weight.detach().t()).tanh()),
    ),
    "a parameter": lambda m, x: (
        x * waves(m.weight.detach()),
        without_gradient(lambda: m.weight.add_(1)),
    ),
    "a parameter's data": lambda m, x: (x * waves(m.weight), lambda: m.weight.data.add_(1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", CHANGES)
def test_what_changes_in_place_is_read_before(form: str) -> None:
    """The backward pass computes nothing again from what the forward pass has changed since."""
    for made, wanted in zip(after_two_steps(form, compiled), after_two_steps(form, lambda m: m)):
        same(made, wanted)


def test_a_buffer_that_changes_in_place_is_read_before() -> None:
    held, x = torch.ones(4), torch.ones(4, requires_grad=True)

    def function(x: Any, held: Any) -> Any:
        y = x * (held + 1).sin()
        held.add_(1)
        return y

    compiled(function)(x, held).sum().backward()
    same(x.grad, torch.full((4,), 2.0).sin())
    same(held, torch.full((4,), 2.0))


@pytest.mark.slow
def test_statistics_that_change_in_place_let_the_rest_be_made_again() -> None:
    """A normalization in training reads its running averages for nothing but their change."""
    norm, kept = nn.BatchNorm1d(3), []

    def pack(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor

    x = torch.randn(5, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compiled(lambda x: norm(x).sin().exp().cos().tanh())(x)
    y.sum().backward()
    # The argument, what was normalized, and the result; not those in between.
    assert sum(tensor.shape == x.shape for tensor in kept) <= 3
    assert int(norm.num_batches_tracked) == 1
