"""One step's operations are counted as torch dispatches them, and training is none the wiser."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.unit.hooks.counted_rank import Rank
from tests.unit.hooks.small_transformer import MODEL_FLOPS, Transformer, batch, loss_of
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

import holdfast
from holdfast import page
from holdfast.counted_step import COUNTED, TRIES, apart
from holdfast.flops import formulas
from holdfast.page import Phase, RecordFlag, Word

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _the_stack_of_modes_is_left_as_it_was() -> Iterator[None]:
    yield
    left = torch._C._len_torch_dispatch_stack()
    for _ in range(left):  # a failure must not be the next test's too
        torch._C._pop_torch_dispatch_stack(None)
    assert left == 0


def training(model: torch.nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, batch()).backward()
        optimizer.step()

    return step


NEVER_AGAIN = COUNTED + sum(apart(one) for one in range(1, TRIES)) + 1
"""Steps after which none is tried any more."""


def product(count: int = 1) -> None:
    """Operations by hand: 2 * 3 * 4 * 5 each."""
    for _ in range(count):
        torch.ones(3, 4) @ torch.ones(4, 5)


PRODUCT = 120


def test_the_operations_of_a_transformer_are_those_of_the_formula() -> None:
    rank = Rank()
    rank.train(training(Transformer()))
    assert rank.told() == pytest.approx(MODEL_FLOPS, rel=0.05)
    assert rank.told(Word.HARDWARE_FLOPS) == rank.told()
    assert (rank.listens, rank.errors, rank.recorder.on_phase) == (False, 0, None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_activation_checkpointing_computes_again_is_the_hardwares_alone(
    reentrant: bool,
) -> None:
    plain, again = Rank(), Rank()
    plain.train(training(Transformer()))
    again.train(training(Transformer(reentrant)))
    assert again.told() == plain.told()
    assert again.told(Word.HARDWARE_FLOPS) > 1.15 * again.told()


def test_so_is_what_a_compiled_backward_pass_computes_again() -> None:
    plain, again = Rank(), Rank()
    plain.train(training(Transformer()))
    model = Transformer(reentrant=False)
    model.compile(backend="aot_eager")
    try:
        again.train(training(model))
    finally:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    assert again.told() == pytest.approx(plain.told(), rel=0.01)
    assert again.told(Word.HARDWARE_FLOPS) > 1.15 * again.told()


def test_a_gradient_that_is_differentiated_itself_is_not_taken_for_something_computed_again() -> (
    None
):
    weights = torch.ones(64, 64, requires_grad=True)

    def step() -> None:
        x = torch.ones(8, 64, requires_grad=True)
        (gradient,) = torch.autograd.grad((x @ weights).tanh().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    rank = Rank()
    rank.train(step)
    assert rank.told() == rank.told(Word.HARDWARE_FLOPS) == 6 * 2 * 8 * 64 * 64


def test_only_the_fourth_step_is_counted_and_the_others_pay_nothing() -> None:
    rank = Rank()
    depths = []
    sizes = iter([1, 1, 1, 2, 5, 5])

    def step() -> None:
        depths.append(torch._C._len_torch_dispatch_stack())
        product(next(sizes))

    rank.train(step, 6)
    assert depths == [0, 0, 0, 1, 0, 0]
    assert rank.told() == 2 * PRODUCT


def test_the_counted_steps_parts_are_nobodys_measure() -> None:
    rank = Rank()

    def step() -> None:
        with rank.during(Phase.BACKWARD):
            product()

    rank.train(step, 6)
    records = [one for _, one in page.parse_records(bytes(rank.recorder._memory), 0)]
    assert [one.step for one in records if one.flags & RecordFlag.WHOLE_ONLY] == [COUNTED]


def test_the_optimizers_own_products_are_no_part_of_the_model() -> None:
    rank = Rank()

    def step() -> None:
        product()
        with rank.during(Phase.OPTIMIZER):
            product()

    rank.train(step)
    assert (rank.told(), rank.told(Word.HARDWARE_FLOPS)) == (PRODUCT, 2 * PRODUCT)


def test_a_copy_made_for_saving_is_no_part_of_the_step() -> None:
    rank = Rank()

    def step() -> None:
        product()
        with rank.during(Phase.SAVING):
            product()

    rank.train(step)
    assert rank.told(Word.HARDWARE_FLOPS) == PRODUCT


def test_a_step_with_an_evaluation_in_it_is_passed_over_and_nothing_listens_meanwhile() -> None:
    rank = Rank()
    steps = iter(range(1, 9))

    def step() -> None:
        product()
        if next(steps) == COUNTED:
            with rank.during(Phase.EVALUATING):
                assert torch._C._len_torch_dispatch_stack() == 0
                product(100)

    rank.train(step, COUNTED)
    assert (rank.told(), rank.listens) == (0.0, True)
    rank.train(step, 1)
    assert (rank.told(), rank.listens) == (PRODUCT, False)


def test_what_a_loss_scaler_passed_over_is_not_counted_with_the_step_that_follows() -> None:
    rank = Rank()
    rank.train(product, COUNTED - 1)
    rank.recorder.add_backward()
    rank.recorder.add_backward()
    product(2)
    rank.end_step()
    assert rank.told() == 0.0
    rank.train(product, 2)
    assert rank.told() == PRODUCT


def test_a_script_whose_steps_are_never_ordinary_is_left_alone_in_the_end() -> None:
    rank = Rank()

    def step() -> None:
        with rank.during(Phase.EVALUATING):
            product()

    rank.train(step, NEVER_AGAIN)
    assert (rank.told(), rank.listens) == (0.0, False)


def test_the_steps_that_are_tried_lie_ever_farther_apart_and_then_it_is_said_why_none_was_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rank = Rank()
    tried = []

    def step() -> None:
        if torch._C._len_torch_dispatch_stack():
            tried.append(rank.recorder.word(Word.STEP) + 1)
        with rank.during(Phase.COMPILING):
            product()

    rank.train(step, NEVER_AGAIN + 10)
    assert tried == [4, 5, 6, 7, 11, 27, 91, 347]
    assert (rank.told(), rank.listens, rank.errors) == (0.0, False, 0)
    assert [one.getMessage() for one in caplog.records] == [
        "holdfast: the operations of a step are not counted: torch traced or compiled in it"
    ]


def test_a_compiler_at_work_finds_the_modes_as_they_were_when_it_began() -> None:
    rank = Rank()
    rank.train(product, COUNTED - 1)
    with rank.during(Phase.COMPILING):
        assert torch._C._len_torch_dispatch_stack() == 1
        product()
    rank.train(product, 1)
    assert rank.told() == 0.0
    rank.train(product, 1)
    assert rank.told() == PRODUCT


def test_while_somebody_has_taken_all_modes_off_ours_stays_ours_to_take_off() -> None:
    rank = Rank()
    rank.train(product, COUNTED - 1)
    with _disable_current_modes():
        rank.recorder.add_backward()
        product()
        rank.end_step()
    assert torch._C._len_torch_dispatch_stack() == 1
    rank.train(product, 2)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert (rank.listens, rank.errors) == (False, 0)


def test_a_step_whose_forward_pass_ran_in_another_thread_is_not_told_as_its_backward_alone() -> (
    None
):
    rank = Rank()
    weights = torch.ones(4, 4, requires_grad=True)

    def step() -> None:
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append((torch.ones(3, 4) @ weights).sum()))
        thread.start()
        thread.join()
        found[0].backward()

    rank.train(step)
    assert (rank.told(), rank.listens) == (0.0, True)
    rank.train(product, 1)
    assert (rank.told(), rank.listens) == (PRODUCT, False)


def test_a_script_may_count_for_itself_and_both_are_right() -> None:
    rank = Rank()
    theirs = []

    def step() -> None:
        with FlopCounterMode(display=False) as own:
            product()
        theirs.append(own.get_total_flops())

    rank.train(step, 6)
    assert theirs == [PRODUCT] * 6
    assert rank.told() == PRODUCT


def test_a_mode_of_the_script_that_is_open_at_a_steps_end_stays_open_and_closes_as_it_would() -> (
    None
):
    rank = Rank()
    rank.train(product, COUNTED - 1)
    own = FlopCounterMode(display=False)
    with own:
        rank.recorder.add_backward()
        product()
        rank.end_step()  # the counted step ends inside
        product()
    assert own.get_total_flops() == 2 * PRODUCT
    assert rank.told() == PRODUCT


def test_while_a_mode_of_the_script_is_open_at_the_ends_of_all_steps_none_is_counted() -> None:
    rank = Rank()
    with FlopCounterMode(display=False) as own:
        rank.train(product, NEVER_AGAIN)
    assert own.get_total_flops() == NEVER_AGAIN * PRODUCT
    assert (rank.told(), rank.listens) == (0.0, False)


def test_what_a_cuda_graph_replays_can_not_be_seen_so_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Graph:
        def replay(self) -> str:
            return "replayed"

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    replay = Graph.replay
    rank = Rank()

    def step() -> None:
        product()
        assert Graph().replay() == "replayed"

    rank.train(step)
    assert (rank.told(), rank.listens) == (0.0, False)
    assert Graph.replay is replay


def test_an_operation_whose_formula_fails_is_done_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> int:
        raise ValueError("odd shape")

    monkeypatch.setitem(torch.utils.flop_counter.flop_registry, torch.ops.aten.mm, fails)
    rank = Rank()
    rank.train(product)
    assert (rank.told(), rank.listens, rank.errors) == (0.0, False, 0)


def test_a_script_whose_whole_step_is_compiled_goes_on_and_none_is_counted() -> None:
    rank = Rank()
    weights = torch.ones(4, 4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)
    end_step = torch.compiler.disable(rank.end_step)

    @torch.compile(backend="eager")
    def step() -> None:
        (torch.ones(3, 4) @ weights).sum().backward()
        optimizer.step()
        end_step()

    for _ in range(NEVER_AGAIN):
        step()
        optimizer.zero_grad()
    assert (rank.told(), rank.listens, rank.errors) == (0.0, False, 0)


def test_counting_that_began_outside_of_something_compiled_is_put_away_outside_of_it() -> None:
    rank = Rank()
    rank.train(product, COUNTED - 1)
    end_step = torch.compiler.disable(rank.end_step)

    @torch.compile(backend="eager")
    def step() -> torch.Tensor:
        made = torch.ones(3, 4) @ torch.ones(4, 5)
        end_step()
        return made + 1

    rank.recorder.add_backward()
    step()
    assert (rank.told(), rank.listens) == (PRODUCT, True)
    assert torch._C._len_torch_dispatch_stack() == 1
    rank.end_step()
    assert (rank.told(), rank.listens) == (PRODUCT, False)
    assert torch.ones(2).add(1).tolist() == [2.0, 2.0]


def test_steps_that_end_inside_of_backward_passes_are_left_alone() -> None:
    rank = Rank()
    weights = torch.ones(4, 4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)

    def update(_: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()
        rank.end_step()

    weights.register_post_accumulate_grad_hook(update)
    for _ in range(NEVER_AGAIN):
        (torch.ones(3, 4) @ weights).sum().backward()
    assert (rank.told(), rank.listens, rank.errors) == (0.0, False, 0)


def test_an_older_torch_that_can_not_be_listened_to_safely_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(TorchDispatchMode, "supports_higher_order_operators")
    rank = Rank()
    depths = []
    rank.train(lambda: depths.append(torch._C._len_torch_dispatch_stack()), 6)
    assert (rank.told(), rank.listens, depths) == (0.0, False, [0] * 6)


def test_where_torch_has_no_formula_for_much_of_the_step_none_is_told_rather_than_too_few() -> None:
    recurrent, rank = torch.nn.LSTM(4, 8), Rank()
    rank.train(lambda: recurrent(torch.ones(6, 4))[0].sum().backward())
    assert (rank.told(), rank.listens, rank.errors) == (0.0, False, 0)


@pytest.mark.parametrize(
    ("first", "second", "flops"),
    [
        ((30, 4), (2, 4, 5), 2 * 30 * 4 * 5),
        ((2, 30, 4), (2, 4, 5), 2 * 2 * 30 * 4 * 5),
        ((4, 30), (30, 5), 2 * 4 * 30 * 5),
        ((2, 3, 4), (4, 10), 2 * 3 * 4 * 10),
    ],
)
def test_the_products_of_experts_count_their_rows_once(
    first: tuple[int, ...], second: tuple[int, ...], flops: int
) -> None:
    formula = formulas(torch)[torch.ops.aten._grouped_mm]
    assert formula(torch.ones(first), torch.ones(second), None, out_val=None) == flops


def test_a_child_that_is_forked_in_the_counted_step_does_not_listen() -> None:
    rank = Rank()
    rank.train(product, COUNTED - 1)
    child = os.fork()
    if child == 0:
        os._exit(torch._C._len_torch_dispatch_stack())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch._C._len_torch_dispatch_stack() == 1
    rank.train(product, 1)
    assert rank.told() == PRODUCT


@pytest.mark.parametrize(
    ("said", "told"), [("0", 0.0), ("6.5e15", 6.5e15), ("inf", 0.0), ("-3", 0.0)]
)
def test_the_user_may_switch_it_off_or_say_the_number(said: str, told: float) -> None:
    rank = Rank(HOLDFAST_FLOPS=said)
    depths = []
    rank.train(lambda: depths.append(torch._C._len_torch_dispatch_stack()), 5)
    assert rank.told() == rank.told(Word.HARDWARE_FLOPS) == told
    assert said in ("inf", "-3") or depths == [0] * 5


def test_a_script_may_say_its_number_and_none_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank()
    monkeypatch.setattr("holdfast.job.recording", lambda: rank.recorder)
    holdfast.attach(flops_per_step=7e9)
    rank.train(product, 6)
    assert (rank.told(), rank.told(Word.HARDWARE_FLOPS), rank.listens) == (7e9, 7e9, False)


def test_what_a_device_could_do_is_the_users_word_or_not_known_of_a_cpu() -> None:
    rank, silent = Rank(HOLDFAST_PEAK_FLOPS="2e12"), Rank()
    for one in (rank, silent):
        one.train(product)
    assert (rank.told(Word.PEAK_FLOPS), silent.told(Word.PEAK_FLOPS)) == (2e12, 0.0)


@pytest.mark.parametrize("name", ["HOLDFAST_FLOPS", "HOLDFAST_PEAK_FLOPS"])
def test_what_is_no_number_counts_as_not_said_and_the_counting_ends_as_ever(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    rank, depths = Rank(**{name: "989 TFLOPS"}), []
    rank.train(product)
    rank.train(lambda: depths.append(torch._C._len_torch_dispatch_stack()), 2)
    assert depths == [0, 0]
    assert (rank.told(), rank.told(Word.PEAK_FLOPS), rank.listens) == (PRODUCT, 0.0, False)
    assert (rank.errors, rank.recorder.on_phase) == (0, None)
    assert [one.getMessage() for one in caplog.records] == [
        f"holdfast: {name}=989 TFLOPS is not a number like 6e15; it is left out"
    ]


def test_a_device_that_does_not_tell_its_name_does_not_keep_the_counting_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> str:
        raise RuntimeError("no driver")

    monkeypatch.setattr("holdfast.counted_step.peak_flops", fails)
    rank, depths = Rank(), []
    rank.train(product)
    rank.train(lambda: depths.append(torch._C._len_torch_dispatch_stack()), 2)
    assert depths == [0, 0]
    assert (rank.told(), rank.listens, rank.errors) == (PRODUCT, False, 1)
    assert rank.recorder.on_phase is None


KINDS: dict[str, Callable[[], torch.nn.Module]] = {
    "transformer": Transformer,
    "computed again": lambda: Transformer(False),
    "computed again, reentrant": lambda: Transformer(True),
    "convolutions": lambda: torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 4)),
        torch.nn.Conv1d(1, 8, 3, padding=1),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(0.3),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 1),
    ),
    "recurrent": lambda: torch.nn.GRUCell(4, 8),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_the_weights_are_the_same_to_the_last_bit(kind: str, optimizer: Any) -> None:
    def trained(rank: Rank) -> list[bytes]:
        torch.manual_seed(7)
        model = KINDS[kind]()
        steps = optimizer(model.parameters(), lr=0.05, foreach=True)

        def step() -> None:
            steps.zero_grad()
            if isinstance(model, Transformer):
                loss = loss_of(model, batch())
            else:
                out = model(torch.randn(6, 4))
                loss = out.square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            steps.step()

        rank.train(step, 6)
        return [one.detach().numpy().tobytes() for one in model.parameters()]

    counted = Rank()
    assert trained(counted) == trained(Rank(HOLDFAST_FLOPS="0"))
    assert counted.told() > 0
