"""Whatever a script does to torch's dispatching in a counted step: all is as if nobody counted."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.unit.hooks.counted_rank import Rank
from torch import nn
from torch.utils import checkpoint

from holdfast.counted_step import COUNTED

pytestmark = pytest.mark.torch

STEPS = COUNTED + 3
"""The counted one, and those after it, in which something might be compiled again."""

GRAPHS: list[str] = []


def recorded(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    """A compiler of scripts: keeps what it was given, and compiles it with AOT autograd."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    GRAPHS.append(graph.print_readable(print_output=False))

    def keep(traced: torch.fx.GraphModule, _: Any) -> Any:
        GRAPHS.append(traced.print_readable(print_output=False))
        return make_boxed_func(traced.forward)

    return aot_autograd(fw_compiler=keep, bw_compiler=keep)(graph, inputs)


@pytest.fixture(autouse=True)
def _a_compiler_that_knows_nothing() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    # Nor what was compiled before, on this machine at any time.
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert torch._C._len_torch_dispatch_stack() == 0


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def trained(rank: Rank, make: Callable[[nn.Module], Any]) -> tuple[list[str], Any]:
    """The bits of all losses and weights, and what was compiled, of training with this in it."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    GRAPHS.clear()
    torch.manual_seed(5)
    trainee = model()
    optimizer = torch.optim.SGD(trainee.parameters(), lr=0.01)
    loss_of = make(trainee)
    bits = []
    steps = iter(range(1, STEPS + 1))

    def step() -> None:
        number = next(steps)
        x = torch.randn(8, 16)
        loss = loss_of(x, number)
        if loss.requires_grad:
            loss.backward()
        bits.append(float(loss.detach()).hex())
        optimizer.step()
        optimizer.zero_grad()

    try:
        rank.train(step, STEPS)
    finally:
        rank.counted._modes.take_off()  # a failure must not be the next test's too
    bits += [str(one.detach().numpy().tobytes()) for one in trainee.parameters()]
    counters = {key: dict(one) for key, one in torch._dynamo.utils.counters.items()}
    return bits, (counters, list(GRAPHS))


def in_the_counted_step(number: int) -> bool:
    return number == COUNTED


FAMILIES: dict[str, Callable[[nn.Module], Any]] = {}


def family(make: Callable[[nn.Module], Any]) -> Callable[[nn.Module], Any]:
    FAMILIES[make.__name__.replace("_", " ")] = make
    return make


@family
def a_fake_mode(m: nn.Module) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        with FakeTensorMode(allow_non_fake_inputs=True):
            nn.Linear(16, 16)(torch.randn(4, 16))
            m(torch.randn(3, 16))
        return m(x).pow(2).mean()

    return loss


@family
def fake_tensors_outside_of_their_mode(m: nn.Module) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.randn(4, 4))

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        assert (fake @ fake + 1).shape == (4, 4)
        return m(x).pow(2).mean()

    return loss


@family
def functional_tensors(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        def inner(a: torch.Tensor) -> torch.Tensor:
            return (a @ a.t()).add_(1)

        torch.func.functionalize(inner)(x)
        return m(x).pow(2).mean()

    return loss


@family
def export(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        GRAPHS.append(str(torch.export.export(nn.Linear(16, 16), (x,)).graph))
        return m(x).pow(2).mean()

    return loss


@family
def export_and_decompose(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        program = torch.export.export(nn.Linear(16, 16), (x,)).run_decompositions()
        GRAPHS.append(str(program.graph))
        return m(x).pow(2).mean()

    return loss


def _made(tracing: str) -> Callable[[nn.Module], Any]:
    def make(m: nn.Module) -> Any:
        from torch.fx.experimental.proxy_tensor import make_fx

        def loss(x: torch.Tensor, _: int) -> torch.Tensor:
            GRAPHS.append(make_fx(m, tracing_mode=tracing, _allow_non_fake_inputs=True)(x).code)
            return m(x).pow(2).mean()

        return loss

    return make


for one in ("real", "fake", "symbolic"):
    FAMILIES[f"make_fx {one}"] = _made(one)


@family
def aot_functionalized(m: nn.Module) -> Any:
    from functorch.compile import aot_function, nop

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        def inner(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return (a @ w.t()).pow(2).mean()

        return aot_function(inner, nop)(x, m[0].weight) + m(x).pow(2).mean()

    return loss


@family
def jit_traced(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        traced = torch.jit.trace(m, x)
        GRAPHS.append(str([node.kind() for node in traced.inlined_graph.nodes()]))
        return traced(x).pow(2).mean()

    return loss


@family
def jit_scripted(m: nn.Module) -> Any:
    scripted = torch.jit.script(m)
    return lambda x, _: scripted(x).pow(2).mean()


@family
def vmap_of_grad(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        weights = dict(m.named_parameters())

        def one(p: Any, v: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(m, p, (v,)).pow(2).sum()

        grads = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(weights, x)
        return m(x).pow(2).mean() + 0 * sum(g.sum() for g in grads.values())

    return loss


@family
def jvp_and_hessian(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        def f(a: torch.Tensor) -> torch.Tensor:
            return m(a).pow(2).mean()

        out, tangent = torch.func.jvp(f, (x,), (torch.ones_like(x),))
        second = torch.func.hessian(f)(x[:1, :])
        return out + 0 * tangent + 0 * second.sum()

    return loss


@family
def checkpointed_selectively(m: nn.Module) -> Any:
    context = functools.partial(
        checkpoint.create_selective_checkpoint_contexts,
        [torch.ops.aten.mm.default, torch.ops.aten.addmm.default],
    )

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        x.requires_grad_()
        out = checkpoint.checkpoint(m, x, use_reentrant=False, context_fn=context)
        return out.pow(2).mean()

    return loss


@family
def inference_mode(m: nn.Module) -> Any:
    teacher = model()

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        with torch.inference_mode():
            wanted = teacher(x)
        return (m(x) - wanted.clone()).pow(2).mean()

    return loss


@family
def a_mode_of_the_script(m: nn.Module) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Own(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            GRAPHS.append(str(func))
            return func(*args, **(kwargs or {}))

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        with Own():
            return m(x).pow(2).mean()

    return loss


class Plain(torch.Tensor):
    """A subclass that dispatches nothing itself."""


class Refuses(torch.Tensor):
    """A subclass that wraps, and refuses what it doesn't know."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.mm.default:
            return NotImplemented
        return func(*(a.inner if isinstance(a, cls) else a for a in args))


@family
def a_subclass_that_refuses(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        x.as_subclass(Plain)
        odd = Refuses(x.detach())
        assert (odd @ torch.ones(16, 2)).shape == (8, 2)
        with contextlib.suppress(TypeError):
            odd.sin()
        return m(x).pow(2).mean()

    return loss


@family
def a_subclass_in_a_fake_mode(m: nn.Module) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        two = TwoTensor(x.detach(), x.detach())
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(two)
            torch.mm(fake, fake.t())
        return m(x).pow(2).mean() + 0 * torch.mm(two, two.t()).a.sum()

    return loss


@family
def masked_tensors(m: nn.Module) -> Any:
    from torch.masked import masked_tensor

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        masked = masked_tensor(x, x > 0)
        return m(x).pow(2).mean() + 0 * masked.sum().get_data()

    return loss


@family
def nested_tensors(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        ragged = torch.nested.nested_tensor([x[:3], x[3:]], layout=torch.jagged)
        old = torch.nested.nested_tensor([x[:3], x[3:]])
        assert ragged.is_contiguous()
        assert len(old.unbind()) == 2
        return m(ragged).values().pow(2).mean()

    return loss


@family
def quantized_tensors(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return m(x).pow(2).mean() + 0 * q.dequantize().sum()

    return loss


@family
def sparse_tensors(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        return m(x).pow(2).mean() + 0 * (x.detach().relu().to_sparse() @ torch.ones(16, 1)).sum()

    return loss


@family
def flex_attention(m: nn.Module) -> Any:
    from torch.nn.attention.flex_attention import flex_attention as flex

    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        q = x.view(1, 2, 4, 16)
        return m(flex(q, q, q).view(8, 16)).pow(2).mean()

    return loss


@family
def conditional(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        out = torch.cond(x.sum() > 0, lambda a: a @ a.t(), lambda a: a @ a.t() * 2, (x,))
        return m(x).pow(2).mean() + 0 * out.sum()

    return loss


@family
def a_forward_in_another_thread(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        outs: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: outs.append(m(x).pow(2).mean()))
        thread.start()
        thread.join()
        return outs[0]

    return loss


@family
def copies_and_pickles(m: nn.Module) -> Any:
    def loss(x: torch.Tensor, _: int) -> torch.Tensor:
        twin = copy.deepcopy(m)
        file = io.BytesIO()
        torch.save(twin, file)
        file.seek(0)
        return torch.load(file, weights_only=False)(x).mean() * 0 + m(x).pow(2).mean()

    return loss


def _sizes(x: torch.Tensor, number: int) -> torch.Tensor:
    return x[:5] if in_the_counted_step(number) else x


def _compiled(backend: Any, **options: Any) -> Callable[[nn.Module], Any]:
    def make(m: nn.Module) -> Any:
        fast = torch.compile(m, backend=backend, **options)
        return lambda x, number: fast(_sizes(x, number)).pow(2).mean()

    return make


FAMILIES["compiled again"] = _compiled(recorded)
FAMILIES["compiled again, static"] = _compiled(recorded, dynamic=False)
FAMILIES["compiled again by inductor"] = _compiled("inductor")


@family
def compiled_first_in_the_counted_step(m: nn.Module) -> Any:
    fast = torch.compile(copy.copy(m), backend=recorded)
    return lambda x, number: (fast if number >= COUNTED else m)(x).pow(2).mean()


@family
def a_compiled_optimizer(m: nn.Module) -> Any:
    own = torch.optim.Adam(m.parameters(), lr=0.001)
    update = torch.compile(own.step, backend=recorded)

    def loss(x: torch.Tensor, number: int) -> torch.Tensor:
        m(x).pow(2).mean().backward()
        if number >= COUNTED:
            update()
        own.zero_grad()
        return m(x).pow(2).mean()

    return loss


@family
def compiled_autograd(m: nn.Module) -> Any:
    from torch._dynamo import compiled_autograd as compiled

    def loss(x: torch.Tensor, number: int) -> torch.Tensor:
        out = m(_sizes(x, number)).pow(2).mean()
        fast = compiled._enable(torch.compile(backend="aot_eager"))
        with fast if number >= COUNTED else contextlib.nullcontext():
            out.backward()
        if in_the_counted_step(number):
            GRAPHS.append(str(torch._dynamo.utils.counters["compiled_autograd"]))
        return m(x).pow(2).mean()

    return loss


NOT_KNOWN = {
    "a fake mode",
    "a forward in another thread",
    "a subclass in a fake mode",
    "aot functionalized",
    "conditional",
    "export",
    "export and decompose",
    "fake tensors outside of their mode",
    "make_fx fake",
    "make_fx real",
    "make_fx symbolic",
}
"""What is traced is not computed, and what is inside of a condition can't be seen."""


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_training_is_the_same_to_the_last_bit_and_so_is_what_is_compiled(name: str) -> None:
    plain = trained(Rank(HOLDFAST_FLOPS="0"), FAMILIES[name])
    rank = Rank()
    counted = trained(rank, FAMILIES[name])
    assert counted == plain
    assert rank.errors == 0
    assert (rank.told() > 0) == (name not in NOT_KNOWN)
