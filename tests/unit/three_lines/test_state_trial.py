"""What could not be given back is found at the first steps, by trying it; nothing is touched."""

import copy
import pickle
from typing import Any

import pytest
import torch

from holdfast.contract import environment, page
from holdfast.contract.page import Order, OrderKind, ReplyState, Word
from holdfast.job import Job
from holdfast.loop import Boundary
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.recording.waiting_gradients import MOST_GATHERED
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.saving import Savable
from holdfast.state.state_trial import TRIED_AFTER, try_state

pytestmark = pytest.mark.torch


def network(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 2)).to(dtype)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(3, 64, dtype=next(model.parameters()).dtype)).sum().backward()
    optimizer.step()


def doubts(**objects):
    return [doubt.text for doubt in try_state(Savable(register(objects)), 1)]


class Thing:
    """Anything that keeps tensors."""

    def __init__(self, **kept):
        self.kept = kept

    def state_dict(self):
        return dict(self.kept)

    def load_state_dict(self, state):
        self.kept = dict(state)


class Average(Thing):
    """An EMA that assigns."""


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adafactor", "RMSprop", "NAdam"])
def test_what_torch_offers_comes_back_and_is_not_touched(name):
    model = network()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
    step(model, optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    average = Average(shadow=[parameter.detach().clone() for parameter in model.parameters()])
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), average.state_dict()))
    found = doubts(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=torch.amp.GradScaler("cpu"),
        generator=torch.Generator(),
        average=average,
    )
    assert found == []
    assert repr((model.state_dict(), optimizer.state_dict(), average.state_dict())) == repr(before)


def test_state_in_an_optimizer_inside_of_an_optimizer_is_missed():
    class Sharp(torch.optim.Optimizer):  # as implementations of SAM are
        def __init__(self, parameters):
            super().__init__(parameters, {})
            self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

        def step(self):
            self.base.step()

    model = network()
    optimizer = Sharp(model.parameters())
    step(model, optimizer)
    (found,) = try_state(Savable(register({"model": model, "optimizer": optimizer})), 1)
    assert found.text.startswith(
        "the state of optimizer.base (SGD) is in the state_dict of nothing"
    )
    assert found.refuses


def test_a_trained_parameter_that_its_model_does_not_tell_of_is_missed():
    class Secretive(torch.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            return {key: value.clone() for key, value in state.items() if key != "bias"}

    model = Secretive(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (found,) = try_state(Savable(register({"model": model, "optimizer": optimizer})), 1)
    assert found.text.startswith("model.bias is trained by optimizer and is not in its model's")
    assert found.refuses
    assert doubts(model=model, optimizer=torch.optim.SGD([model.weight], lr=0.1)) == []


@pytest.mark.parametrize("tell", [lambda tensor: tensor.float(), lambda tensor: tensor * 1.5])
def test_a_model_that_tells_its_parameters_in_other_numbers_is_not_accused(tell):
    class Cast(torch.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            return {key: tell(value) for key, value in state.items()}

    model = Cast(64, 64, dtype=torch.bfloat16)
    assert doubts(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) == []


def test_a_parameter_of_another_shape_than_its_model_tells_is_missed():
    class Halved(torch.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            return {key: value[:32].clone() for key, value in state.items()}

    model = Halved(64, 64)
    (found,) = doubts(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert found.startswith("model.weight is trained by optimizer and is not in its model's")


def test_an_optimizer_that_was_forgotten_is_missed_by_its_scheduler():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    (found,) = doubts(model=model, scheduler=scheduler)
    assert "scheduler.optimizer (Adam)" in found
    assert "attach it too" in found


class Silent(torch.optim.Adam):
    """As Megatron's distributed optimizer: its state_dict tells of groups alone."""

    def state_dict(self):
        return {**super().state_dict(), "state": {}}


def test_an_optimizer_whose_state_dict_is_not_its_state_is_missed():
    model = network()
    optimizer = Silent(model.parameters())
    assert doubts(model=model, optimizer=optimizer) == [], "there is nothing to be told yet"
    step(model, optimizer)
    (found,) = try_state(Savable(register({"model": model, "optimizer": optimizer})), 1)
    assert found.text.startswith("the state_dict of optimizer tells nothing of its state")
    assert found.refuses


def test_a_default_that_loading_fills_in_refuses_nothing():
    class Short(torch.optim.Adam):
        """Its defaults are those of an older torch."""

        def __init__(self, parameters):
            short = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
            torch.optim.Optimizer.__init__(self, parameters, {**short, "amsgrad": False})

        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    self.state[one]["exp_avg"] = torch.zeros_like(one)
                    self.state[one]["step"] = torch.tensor(1.0)

    model = network()
    optimizer = Short(model.parameters())
    step(model, optimizer)
    assert doubts(model=model, optimizer=optimizer) == []


def test_moments_that_torch_would_round_are_told_of_and_saved():
    model = network(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        optimizer.state[parameter]["moment"] = torch.zeros_like(parameter, dtype=torch.float32)
    (found,) = try_state(Savable(register({"model": model, "optimizer": optimizer})), 1)
    assert "would come back as bfloat16 of [64, 64] and is float32 of [64, 64]" in found.text
    assert not found.refuses


class Odd(Exception):
    """Of the script's own making."""


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize("error", [Odd("no"), copy.Error("no"), pickle.PicklingError("no")])
def test_what_an_odd_object_raises_is_told(error):
    odd = type("OddThing", (Thing,), {"state_dict": raising(error)})()
    (found,) = doubts(odd=odd, thing=Thing(f=1))
    assert found.startswith(f"the state can't be taken ({type(error).__name__}: no); pass save=")


def test_what_an_adapter_can_not_try_hides_nothing_of_the_rest():
    def trial():
        yield "the first is odd"
        raise Odd("no")

    savable = Savable(register({"thing": Thing()}), trial=trial)
    savable.registered.others["thing"].kept["f"] = open
    found = [doubt.text for doubt in try_state(savable, 1)]
    assert found[0] == "the first is odd"
    assert found[-1].startswith("thing['f'] is")


LIVE: dict[str, Any] = {}
"""What objects reach that no copy of them holds."""


def reach_the_training(*_):
    LIVE["calls"] = LIVE.get("calls", 0) + 1
    for tensor in LIVE["tensors"]:
        tensor.data = tensor.data.to("meta")


class Reaching(Thing):
    """As a callback that gives a global EMA its numbers, rewrites a log file, or broadcasts."""

    back: object
    load_state_dict = reach_the_training


class Lagging(torch.optim.Adam):
    """Loads by code of its own."""

    load_state_dict = reach_the_training


class Restoring(torch.optim.Adam):
    def __setstate__(self, state):
        super().__setstate__(state)
        reach_the_training()


def patched(parameters):
    optimizer = torch.optim.Adam(parameters)
    optimizer.load_state_dict = reach_the_training
    return optimizer


def hooked(parameters):
    optimizer = torch.optim.Adam(parameters)
    optimizer.register_load_state_dict_pre_hook(reach_the_training)
    optimizer.register_load_state_dict_post_hook(reach_the_training)
    return optimizer


@pytest.mark.parametrize("make", [torch.optim.Adam, Lagging, Restoring, patched, hooked])
def test_nothing_of_somebody_elses_that_loads_is_called(make):
    model = network()
    LIVE.update(calls=0, tensors=list(model.parameters()))
    optimizer = make(model.parameters())
    step(model, optimizer)
    before = copy.deepcopy(model.state_dict())
    reaching = Reaching(mean=torch.ones(5000))
    reaching.back = reaching
    assert doubts(model=model, optimizer=optimizer, reaching=reaching) == []
    assert LIVE["calls"] == 0
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_state_of_small_numbers_is_not_copied():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        optimizer.state[parameter]["moment"] = torch.zeros(1 << 22, dtype=torch.uint8)
    copied = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.Tensor.clone:
                copied.append(args[0].nbytes)
            return func(*args, **(kwargs or {}))

    with Watching():
        doubts(model=model, optimizer=optimizer)
    assert all(size <= 1 << 14 for size in copied)


class Watched:
    """A boundary over a page in memory."""

    def __init__(self, root, **objects):
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0)
        savable = Savable(register(objects))
        self.boundary = Boundary(self.recorder, Placement(), savable, str(root))

    def cross(self, step):
        return self.boundary.cross(step, lambda: Position(0, 0))

    def order(self, step):
        order = Order(OrderKind.CHECKPOINT, 0, 1, step, 1 << 62, "aa")
        body, head = page.pack_order(order, 1)
        start = page.order_offset(OrderKind.CHECKPOINT)
        self.memory[start : start + 8 + len(body)] = head + body

    @property
    def told(self):
        return page.parse_unrestorable(bytes(self.memory))

    @property
    def reply(self):
        reply = page.parse_reply(bytes(self.memory))
        assert reply is not None
        return reply.state


def test_it_is_tried_behind_the_first_steps_and_told_once(tmp_path, caplog):
    tried = []

    class Counting(Thing):
        def state_dict(self):
            tried.append(1)
            return {"made by": open} if len(tried) > 1 else {}

    rank = Watched(tmp_path, counting=Counting())
    tried[1:] = []
    for number in range(9):
        rank.cross(number)
        assert bool(rank.told) == (number > 0)
    assert len(tried) == 1 + len(TRIED_AFTER)
    assert rank.told[0].startswith("counting['made by'] is")
    assert caplog.text.count("could not be resumed") == 1
    assert rank.recorder.word(Word.HOOK_ERRORS) == 0


def gather(job, model, turns):
    for _ in range(turns):
        model(torch.ones(1, 64)).sum().backward()
        job.end_step()


def test_a_loop_that_comes_to_no_boundary_is_a_finding_until_it_comes_to_one():
    memory = bytearray(page.PAGE_SIZE)
    model = network()
    job = Job(Savable(register({"model": model, "thing": Thing(f=1)})), Recorder(memory, attempt=0))
    job.start_loop()
    gather(job, model, MOST_GATHERED - 1)
    assert page.parse_unrestorable(bytes(memory)) == ()
    gather(job, model, 1)
    (told,) = page.parse_unrestorable(bytes(memory))
    assert told.startswith("the gradients of 256 batches wait for an optimizer")
    model.zero_grad()
    job.end_step()
    assert page.parse_unrestorable(bytes(memory)) == ()


def test_what_the_trial_found_stays_told_beside_a_loop_that_comes_to_no_boundary(
    tmp_path, monkeypatch
):
    memory = bytearray(page.PAGE_SIZE)
    model = network()
    monkeypatch.setenv(environment.CHECKPOINT_DIR, str(tmp_path))
    odd = Thing()
    job = Job(Savable(register({"model": model, "odd": odd})), Recorder(memory, attempt=0))
    odd.kept["f"] = open
    job.start_loop()
    job.end_step()
    (found,) = page.parse_unrestorable(bytes(memory))
    gather(job, model, MOST_GATHERED)
    assert page.parse_unrestorable(bytes(memory))[1:] == (found,)
    model.zero_grad()
    job.end_step()
    assert page.parse_unrestorable(bytes(memory)) == (found,)


def test_that_no_optimizer_is_heard_is_said_when_state_is_attached(monkeypatch, caplog):
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    monkeypatch.setenv("HOLDFAST_HOOKS", "-optimizer")
    Job(Savable(register({"thing": Thing(f=1)})), recorder)
    assert caplog.text.count("HOLDFAST_HOOKS leaves out optimizer") == 1
    monkeypatch.delenv("HOLDFAST_HOOKS")
    Job(Savable(register({"thing": Thing(f=1)})), recorder)
    assert caplog.text.count("HOLDFAST_HOOKS") == 1


def test_what_would_come_back_wrong_is_not_saved(tmp_path):
    model = network()
    rank = Watched(tmp_path, model=model, optimizer=Silent(model.parameters()))
    rank.cross(0)
    step(model, rank.boundary.savable.registered.optimizers["optimizer"])
    rank.cross(1)
    rank.order(3)
    for number in (2, 3):
        assert rank.cross(number)
    assert rank.reply is ReplyState.FAILED
    assert list(tmp_path.iterdir()) == []


def test_what_was_resumed_from_has_come_back_already(tmp_path):
    rank = Watched(tmp_path, thing=Thing(f=1))
    rank.boundary.go_on_from((), None)
    rank.boundary.savable.registered.others["thing"].kept["f"] = open
    rank.cross(5)
    rank.cross(6)
    assert rank.told == ()


@pytest.mark.parametrize("reasons", [["a" * 5000], ["…" * 400] * 9, ["\0" * 400] * 3, []])
def test_what_is_told_fits_the_page(reasons):
    memory = bytearray(page.PAGE_SIZE)
    packed = page.pack_unrestorable(reasons)
    assert len(packed) <= page.UNRESTORABLE_SIZE
    memory[page.UNRESTORABLE_OFFSET : page.UNRESTORABLE_OFFSET + len(packed)] = packed
    assert all(told in reasons[0] for told in page.parse_unrestorable(bytes(memory)))
    assert page.parse_unrestorable(bytes(page.PAGE_SIZE)) == ()
