"""What a backward pass waits for is no work of its own: torch's real engine, a stand-in for DDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Flag, Phase, RecordFlag, Word
from holdfast.guard import Guard
from holdfast.patches import backward
from holdfast.recording.recorder import Recorder

torch = pytest.importorskip("torch")

US = 1000
WORK_US, WAIT_US = 10, 40


class Rank:
    """A parameter whose gradient is reduced as DDP does it, and a clock that only it moves."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000 * US
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0, clock=lambda: self.now_ns)
        self.recorder.add_flag(Flag.GROUP_INITIALISED)
        self.recorder.enter(Phase.FORWARD)
        self.weight = torch.ones(3, requires_grad=True)
        self.queue = torch.autograd.Variable._execution_engine.queue_callback
        self.weight.register_post_accumulate_grad_hook(lambda _: self.queue(self.reduce))
        self.reduced_in: list[Phase] = []

    def reduce(self) -> None:
        self.reduced_in.append(self.recorder.phase)
        self.spend(WAIT_US)

    def spend(self, us: int) -> None:
        self.now_ns += us * US

    def work(self, x: Any) -> Any:
        rank = self

        class Work(torch.autograd.Function):  # type: ignore[name-defined,misc,unused-ignore]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                rank.spend(WORK_US)
                return gradient

        return Work.apply(x)  # type: ignore[no-untyped-call,unused-ignore]

    def record(self) -> page.Record:
        self.recorder.end_step(self.recorder.word(Word.STEP) + 1)
        (*_, (_, newest)) = page.parse_records(bytes(self.memory), 0)
        assert self.recorder.word(Word.HOOK_ERRORS) == 0
        return newest


@pytest.fixture
def rank() -> Iterator[Rank]:
    plain = torch.autograd.backward
    scale = torch.amp.GradScaler.scale
    made = Rank()
    guard = Guard(lambda: made.recorder.count(Word.HOOK_ERRORS))
    backward.install(torch, made.recorder, guard)
    yield made
    torch.autograd.backward = plain
    torch.amp.GradScaler.scale = scale


def is_told_apart(record: page.Record, passes: int = 1) -> bool:
    return (
        (record.backward_us, record.communicating_us) == (passes * WORK_US, passes * WAIT_US)
        and record.waits_us == (passes * WAIT_US, 0, 0, 0)
        and bool(record.flags & RecordFlag.WAITS_SEEN)
        and record.backwards == passes
    )


PASSES: dict[str, Callable[[Rank], Any]] = {
    "a loss": lambda rank: rank.work(rank.weight).sum().backward(),
    "a root that is no scalar": lambda rank: torch.autograd.backward(
        [rank.work(rank.weight)], [torch.ones(3)]
    ),
    "two roots": lambda rank: torch.autograd.backward(
        [(y := rank.work(rank.weight)).sum(), (y * 2).mean()]
    ),
    "roots by name": lambda rank: torch.autograd.backward(tensors=rank.work(rank.weight).sum()),
}


@pytest.mark.parametrize("name", PASSES)
def test_the_wait_at_the_end_of_a_pass_is_communicating(rank: Rank, name: str) -> None:
    PASSES[name](rank)
    assert rank.recorder.phase is Phase.FORWARD
    assert is_told_apart(rank.record())


def test_so_it_is_in_every_pass_of_a_step_and_in_the_next_step(rank: Rank) -> None:
    for _ in range(3):
        rank.work(rank.weight).sum().backward()
    assert is_told_apart(rank.record(), passes=3)
    rank.work(rank.weight).sum().backward()
    assert is_told_apart(rank.record())


def test_a_graph_that_is_kept_collects_no_hooks(rank: Rank) -> None:
    loss = rank.work(rank.weight).sum()
    for _ in range(3):
        loss.backward(retain_graph=True)
    assert is_told_apart(rank.record(), passes=3)
    began: list[object] = []
    loss.grad_fn.register_prehook(began.append)
    hooks = loss.grad_fn.register_prehook(began.append).hooks_dict_ref()
    assert len(hooks) == 2


def test_a_pass_inside_another_is_part_of_it_and_waits_for_itself(rank: Rank) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(3, requires_grad=True)
    checkpoint(lambda x: rank.work(x * rank.weight), x, use_reentrant=True).sum().backward()
    record = rank.record()
    assert rank.reduced_in == [Phase.COMMUNICATING]
    assert is_told_apart(record)


def test_a_pass_whose_wait_could_not_be_marked_says_so(rank: Rank) -> None:
    from torch._dynamo import compiled_autograd

    compiled_autograd.compiled_autograd_enabled = True
    try:
        rank.work(rank.weight).sum().backward()
    finally:
        compiled_autograd.compiled_autograd_enabled = False
    record = rank.record()
    assert (record.backward_us, record.communicating_us) == (WORK_US + WAIT_US, 0)
    assert not record.flags & RecordFlag.WAITS_SEEN


def test_a_pass_that_fails_leaves_the_phase_as_it_was(rank: Rank) -> None:
    def break_down(_: Any) -> None:
        raise ValueError("planted")

    loss = rank.work(rank.weight).sum()
    rank.weight.register_hook(break_down)
    with pytest.raises(ValueError, match="planted"):
        loss.backward()
    assert rank.recorder.phase is Phase.FORWARD
    assert rank.recorder.word(Word.HOOK_ERRORS) == 0


def test_a_rank_without_peers_waits_for_nobody_and_pays_for_no_mark(rank: Rank) -> None:
    rank.recorder.has_group = False
    rank.work(rank.weight).sum().backward()
    record = rank.record()
    assert (record.backward_us, record.communicating_us) == (WORK_US + WAIT_US, 0)
    assert record.flags & RecordFlag.WAITS_SEEN


def test_a_torch_without_the_engines_callbacks_sees_no_waits(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", None)
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    backward.install(torch, recorder, Guard(lambda: recorder.count(Word.HOOK_ERRORS)))
    assert not recorder.sees_waits
    assert recorder.word(Word.HOOK_ERRORS) == 0
