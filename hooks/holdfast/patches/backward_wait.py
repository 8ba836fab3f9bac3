"""What a backward pass waits for at its end, told from its work.

DDP's reducer waits for the other ranks below Python: once the graph is finished, in a callback of
the autograd engine, before the pass returns. The engine runs such callbacks in the order in which
they were queued, so one that is queued when the graph begins runs before the reducer's. From then
until the pass returns the rank waits. (A reducer's buckets never wait for each other earlier, while
the graph runs: they are only started there.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.timed import after
from holdfast.recording.recorder import Recorder

_BACKWARD, _COMMUNICATING = Phase.BACKWARD, Phase.COMMUNICATING

MOST_ROOTS = 8
"""Of one pass. A loss or two are usual; whose pass begins at more of them is not looked into."""

_COMPILED = "torch._dynamo.compiled_autograd"


class BackwardWait:
    """Marks where each backward pass ends and its wait begins."""

    def __init__(self, torch: Any, recorder: Recorder, guard: Guard) -> None:
        self._tensor = torch.Tensor
        self._recorder = recorder
        self._is_queued = True
        self._is_waiting = False
        self._queue: Callable[[Callable[[], None]], None] | None = None
        self._carrier: Any = None
        self._handles: list[Any] = []
        self._graph_begins = guard.wrap("graph begins", self._begin, None)
        self._graph_ends = guard.wrap("graph ends", self._end, None)
        guard.run("backward wait", lambda: self._prepare(torch))

    def _prepare(self, torch: Any) -> None:
        """Find what of torch this needs, none of which is public; without it no wait is seen."""
        engine = getattr(getattr(torch.autograd, "Variable", None), "_execution_engine", None)
        queue = getattr(engine, "queue_callback", None)
        node = (torch.ones(1, requires_grad=True) * 1).grad_fn
        if queue is None or not hasattr(node, "_register_hook_dict"):
            return
        # A hook that is made anew for each pass costs 2 us; one dictionary serves them all. A node
        # takes it from a tensor that carries it.
        self._carrier = torch.empty(1)
        self._carrier._backward_hooks = {0: self._graph_begins}
        node._register_hook_dict(self._carrier)
        self._queue = queue
        self._recorder.sees_waits = True

    def arm(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """A backward pass is about to start; False when its wait will not be seen."""
        if self._queue is None or (_COMPILED in sys.modules and _is_compiled()):
            return False
        self._is_queued = self._is_waiting = False
        if len(args) == 1 or (len(args) == 4 and not (args[2] or args[3])):
            root = args[0]  # as `Tensor.backward` calls it: the way of almost every pass
            if type(root) is self._tensor and not (kwargs and _keeps_its_graph((), kwargs)):
                node = root.grad_fn
                if node is not None:
                    node._register_hook_dict(self._carrier)
                return node is not None
        return self._arm_any(args, kwargs)

    def _arm_any(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        nodes = self._nodes(args[0] if args else kwargs.get("tensors"))
        if _keeps_its_graph(args, kwargs):  # which may be gone through for ever
            self._handles += [node.register_prehook(self._graph_begins) for node in nodes]
        else:
            for node in nodes:
                node._register_hook_dict(self._carrier)
        return bool(nodes)

    def leave(self, previous: Phase) -> None:
        """The pass has returned."""
        recorder = self._recorder
        if self._handles:
            handles, self._handles = self._handles, []
            for handle in handles:
                handle.remove()
        if self._is_waiting and recorder.phase is _COMMUNICATING:
            self._is_waiting = False
            since_ns = recorder.mark_ns
            recorder.enter(after(previous))
            recorder.wait_in(recorder.reducer_slot, recorder.mark_ns - since_ns)
            return
        if recorder.has_group:
            recorder.backwards_unseen += 1
        recorder.enter(after(previous))

    def _nodes(self, roots: Any) -> list[Any]:
        if type(roots) is not self._tensor and isinstance(roots, (list, tuple)):
            nodes = [getattr(root, "grad_fn", None) for root in roots[: MOST_ROOTS + 1]]
            return [] if len(nodes) > MOST_ROOTS or None in nodes else nodes
        node = getattr(roots, "grad_fn", None)
        return [] if node is None else [node]

    def _begin(self, *_: Any) -> None:
        if not self._is_queued and self._queue is not None:
            self._is_queued = True
            self._queue(self._graph_ends)

    def _end(self) -> None:
        recorder = self._recorder
        if recorder.phase is _BACKWARD:
            recorder.enter(_COMMUNICATING)
            self._is_waiting = True


def _keeps_its_graph(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """By `retain_graph` or `create_graph`, third and fourth of `torch.autograd.backward`."""
    if len(args) > 2 and (args[2] or True in args[3:4]):
        return True
    return bool(kwargs) and bool(kwargs.get("retain_graph") or kwargs.get("create_graph"))


def _is_compiled() -> bool:
    """Whether the graph itself is compiled before it runs: hooks would become part of it."""
    return bool(getattr(sys.modules[_COMPILED], "compiled_autograd_enabled", False))
