"""A batch's way to a GPU is a phase; every other use of the same calls is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from holdfast.contract import page
from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches import transfers
from holdfast.recording.recorder import Recorder

pytestmark = pytest.mark.torch

NO_GPU = (RuntimeError, AssertionError)
"""What torch says here to a batch that is to go to a GPU."""


class Rank:
    def __init__(self) -> None:
        self.errors = 0
        self.recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
        self.entered: list[Phase] = []
        self.recorder.enter(Phase.FORWARD)
        self.recorder.on_phase = self.entered.append
        transfers.wrap(torch, self.recorder, Guard(self._err))

    def _err(self) -> None:
        self.errors += 1


@pytest.fixture
def rank() -> Iterator[Rank]:
    before = torch.Tensor.to, torch.Tensor.cuda
    made = Rank()
    yield made
    assert made.errors == 0
    torch.Tensor.to, torch.Tensor.cuda = before


MOVES: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda batch: batch.to("cuda"),
    lambda batch: batch.to("cuda:0", non_blocking=True),
    lambda batch: batch.to(torch.device("cuda", 0), torch.float64),
    lambda batch: batch.to(device="cuda"),
    lambda batch: batch.to(0),
    lambda batch: batch.cuda(),
    lambda batch: batch.cuda(0, non_blocking=True),
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asserts what torch says without a GPU")
@pytest.mark.parametrize("move", MOVES)
def test_a_batch_that_goes_to_a_gpu_is_a_transfer_however_it_ends(
    rank: Rank, move: Callable[[torch.Tensor], Any]
) -> None:
    with pytest.raises(NO_GPU):
        move(torch.ones(2))
    assert rank.entered == [Phase.TRANSFERRING, Phase.FORWARD]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.to(torch.float64),
        lambda one: one.to("cpu"),
        lambda one: one.to(torch.device("cpu")),
        lambda one: one.to(one),
        lambda one: one.to(tensor=one),
        lambda one: one.to(dtype=torch.int32),
        lambda one: one.to(memory_format=torch.contiguous_format),
        lambda one: one.to("meta"),
    ],
)
def test_what_goes_nowhere_is_left_alone(
    rank: Rank, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert change(torch.ones(2)).shape == (2,)
    assert rank.entered == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="asserts what torch says without a GPU")
def test_a_models_way_there_and_another_threads_batches_are_no_transfers(rank: Rank) -> None:
    rank.recorder.phase = Phase.STARTING
    with pytest.raises(NO_GPU):
        torch.ones(2).cuda()
    rank.recorder.phase = Phase.FORWARD
    rank.recorder.thread += 1
    with pytest.raises(NO_GPU):
        torch.ones(2).cuda()
    assert rank.entered == []


@pytest.mark.parametrize(
    "function",
    [
        lambda one: one.to(torch.float64).to("cpu") * 2,
        lambda one: torch.Tensor.to(one, torch.float64) * 2,
    ],
)
def test_a_compiler_goes_on_seeing_one_graph(
    rank: Rank, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_mode_of_the_script_sees_the_call_and_nothing_else(rank: Rank) -> None:
    seen: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2).to(torch.float64)
    assert seen[1:] == [torch.Tensor.to]


class Picky(torch.Tensor):
    """Answers what it knows, and refuses all else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ not in ("to", "cuda"):
            raise NotImplementedError(func)
        return "moved"


def test_a_batch_that_refuses_to_say_where_it_lies_is_moved_all_the_same() -> None:
    before = torch.Tensor.to, torch.Tensor.cuda
    rank = Rank()
    try:
        batch = torch.ones(2).as_subclass(Picky)
        assert [batch.to("cuda"), batch.cuda(), torch.ones(2).to(batch)] == ["moved"] * 3
    finally:
        torch.Tensor.to, torch.Tensor.cuda = before
    assert (rank.entered, rank.errors) == ([], 3)


def pretend_torch(cuda: str | None) -> Any:
    def move(*_: Any) -> None:
        raise AssertionError("nothing is moved here")

    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda, hip=None),
        Tensor=type("Tensor", (), {"to": move, "cuda": move}),
        device=torch.device,
        dtype=torch.dtype,
        compiler=torch.compiler,
    )


@pytest.mark.parametrize(
    ("cuda", "drivers", "is_hooked"),
    [
        ("12.8", ("/dev/null",), True),
        ("12.8", ("/dev/none",), False),
        (None, ("/dev/null",), False),
    ],
)
def test_where_there_is_no_gpu_nothing_is_hooked(
    cuda: str | None, drivers: tuple[str, ...], is_hooked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "DRIVERS", drivers)
    pretended = pretend_torch(cuda)
    before = pretended.Tensor.to, pretended.Tensor.cuda
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    transfers.install(pretended, recorder, Guard(lambda: None))
    assert ((pretended.Tensor.to, pretended.Tensor.cuda) != before) is is_hooked
