"""The floating-point operations of one rank, counted as torch dispatches them.

By the formulas of `torch.utils.flop_counter`, and unlike its own mode: a tensor that is spread over
ranks (DTensor) is broken down first, so only this rank's part of it counts; and what activation
checkpointing computes again is told apart. Which step is counted, `counted_step` decides.

Not seen: what a CUDA graph replays, kernels that torch.compile writes for matrix products itself
(max-autotune), and libraries that call theirs past torch. Of causal attention the whole square
counts, as is the custom.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from inspect import getattr_static
from typing import Any

from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.guard import Guard
from holdfast.page import Phase

OUTSIDE = frozenset({Phase.SAVING, Phase.EVALUATING, Phase.IDLE, Phase.RESTORING, Phase.FINISHED})
"""What is computed in these is no part of a training step."""

UNCOUNTED = re.compile(
    r"attn|attention|gemm|matmul|rnn|(grouped|int|pack)_mm"
    r"|aten\.(_?conv|linear|bilinear|einsum|tensordot|linalg_multi_dot)"
)
"""Names of operations that are a large part of a step wherever they occur. Where there is no
formula for one, the sum would be far too small: then none is told. (Those of the second line
reach a mode only in inference mode; elsewhere torch has broken them down by then.)"""

ATTENTION = re.compile(r"attn|attention")

_NO_BACKWARD = -1
_DISPATCH = "__torch_dispatch__"


def formulas(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Operation -> what gives its count; also those that torch leaves out: attention on the CPU,
    and the products of experts."""
    found = dict(flop_counter.flop_registry)
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    for name, formula in (
        (attention, getattr(flop_counter, "sdpa_flop", None)),
        (f"{attention}_backward", getattr(flop_counter, "sdpa_backward_flop", None)),
        ("_grouped_mm", _grouped),
        ("_scaled_grouped_mm", _grouped),
        ("linear", _product),
        ("matmul", _product),
    ):
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and formula is not None:
            found.setdefault(packet, formula)
    return found


def _grouped(first: Any, second: Any, *_: Any, **__: Any) -> int:
    """Of whichever is not split into groups by a dimension, the groups share a dimension."""
    groups = first.shape[0] if first.dim() == second.dim() == 3 else 1
    return int(2 * groups * first.shape[-2] * first.shape[-1] * second.shape[-1])


def _product(first: Any, *_: Any, out_val: Any, **__: Any) -> int:
    """Each number of the answer sums over the last dimension of what comes first."""
    return int(2 * out_val.numel() * first.shape[-1])


class _Pass:
    """One backward pass, or what lies outside of any."""

    def __init__(self) -> None:
        self.flops = 0
        self.attention = 0
        """Of them: of its fused kernels."""
        self.with_grad = 0
        """Of them: while the recording of gradients was on."""
        self.is_plain = False
        """Something ran without that recording, so the pass isn't one that can itself be
        differentiated; whatever switches it on in between computes a part of the forward again."""


class FlopCount(TorchDispatchMode):  # type: ignore[misc]
    """Counts what is dispatched while it is on the stack of modes. It alters nothing."""

    supports_higher_order_operators = True

    def __init__(self, torch: Any, phase: Callable[[], Phase]) -> None:
        super().__init__()
        self._formulas = formulas(torch)
        self._tensor = torch.Tensor
        self._plain = getattr_static(torch.Tensor, _DISPATCH)
        self._whole = torch._ops.HigherOrderOperator
        self._modes_below = torch._C._len_torch_dispatch_stack
        self._is_grad_enabled = torch.is_grad_enabled
        self._backward_pass = torch._C._current_graph_task_id
        self._phase = phase
        self._passes: defaultdict[int, _Pass] = defaultdict(_Pass)
        self._optimizer_flops = 0
        self.by_kind: defaultdict[tuple[Any, Any], int] = defaultdict(int)
        """Kind of number, and device -> operations on it."""
        self.is_over = False
        """Nothing counts any more."""
        self.failure = ""
        """What could not be counted, so that the sum would be too small, whichever step it is."""
        self.reason = ""
        """Why this step's sum means nothing, while another's may."""
        self._look = Guard(self._give_up).wrap("count of operations", self._see, None)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code goes on running as it is, which also keeps its numbers what they are."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count the operation and do it."""
        if not self.is_over and self._modes_below():
            # Torch traces here, by modes that lie below all others: fake tensors, functional ones,
            # a graph's. To refuse would pass them over, for torch asks the kinds of tensors next.
            self.let_be("torch traced or compiled in it")
        if not self.is_over and self._dispatches_again(types):
            return NotImplemented  # that kind of tensor dispatches its own parts again
        out = func(*args, **(kwargs or {}))
        if not self.is_over:
            self._look(func, args, kwargs or {}, out)
        return out

    @property
    def hardware(self) -> int:
        """All operations."""
        return self._optimizer_flops + sum(one.flops for one in self._passes.values())

    @property
    def model(self) -> int:
        """Those that the model needs: neither computed again nor the optimizer's own."""
        forward = self._passes[_NO_BACKWARD]
        backward = [one for number, one in self._passes.items() if number != _NO_BACKWARD]
        needed = sum(one.flops - one.with_grad if one.is_plain else one.flops for one in backward)
        if _has_compiled() and all(one.is_plain for one in backward):
            # A compiled backward pass computes again with nothing to tell it by. Of a product two
            # others need at most its two derivatives, attention a half more (its scores again).
            needed = min(needed, 2 * forward.flops + forward.attention // 2)
        return forward.flops + needed

    @property
    def is_lopsided(self) -> bool:
        """Whether there was a backward pass and none forward: that ran where no mode of this
        thread is (another thread, a kernel of the compiler's own), so how much ran is not known."""
        forward = self._passes[_NO_BACKWARD].flops
        return not forward and any(one.flops for one in self._passes.values())

    def let_be(self, reason: str) -> None:
        """Count nothing more: whatever is dispatched passes as if this mode were not there."""
        self.is_over = True
        self.reason = self.reason or reason

    def _dispatches_again(self, kinds: Any) -> bool:
        # A kind of the script's own may work out its attributes: nothing of it is called.
        return any(
            getattr_static(kind, _DISPATCH, self._plain) is not self._plain for kind in kinds
        )

    def _give_up(self) -> None:
        self.is_over = True
        self.failure = "one of them has a form that is not known"

    def _see(self, func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        phase = self._phase()
        if phase in OUTSIDE:
            return
        records_gradients = self._is_grad_enabled()
        passed = self._passes[self._backward_pass()]
        passed.is_plain = passed.is_plain or not records_gradients
        if str(func) in _IN_RANDOM_STATE:
            func, args, out = _unpacked(str(func), args, out)
        formula = self._formulas.get(getattr(func, "_overloadpacket", func))
        if isinstance(func, self._whole) and self._hides_much(args, formula):
            raise LookupError("what is inside of it can't be seen")
        if formula is None:
            if UNCOUNTED.search(str(func)):
                raise LookupError("torch has no formula for it")
            return
        flops = int(formula(*args, **kwargs, out_val=out))
        first = next((one for one in args if isinstance(one, self._tensor)), None)
        self.by_kind[getattr(first, "dtype", None), getattr(first, "device", None)] += flops
        if phase is Phase.OPTIMIZER:
            self._optimizer_flops += flops
        else:
            passed.flops += flops
            passed.attention += flops if ATTENTION.search(str(func)) else 0
            passed.with_grad += flops if records_gradients else 0

    def _hides_much(self, args: Any, formula: Any) -> bool:
        """Whether an operation that is dispatched as a whole runs others unseen: those of a graph
        or function it is given, or of tensors that would dispatch their own parts."""
        kinds = {type(one) for one in args if isinstance(one, self._tensor)}
        return self._dispatches_again(kinds) or (
            formula is None and any(callable(one) for one in args)
        )


_IN_RANDOM_STATE = ("run_and_save_rng_state", "run_with_rng_state")
"""As compiled checkpointing calls what may draw random numbers, attention above all."""


def _unpacked(name: str, args: Any, out: Any) -> tuple[Any, Any, Any]:
    """The operation itself, what it was given, and what it answered."""
    if name == "run_and_save_rng_state":
        return args[0], args[1:], out[1]
    return args[1], args[2:], out


def _has_compiled() -> bool:
    """Whether torch.compile made anything that runs."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and dynamo.counters.get("frames", {}).get("ok"))
