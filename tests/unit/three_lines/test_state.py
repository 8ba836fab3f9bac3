"""What is written for registered objects comes back, or is refused with the reason."""

import json
from dataclasses import replace

import pytest
import torch

from holdfast.contract.checkpoint_files import account_file
from holdfast.contract.storage import LocalFolder
from holdfast.recording.placement import Placement
from holdfast.state.checkpoint_source import load_checkpoint
from holdfast.state.data_position import Position
from holdfast.state.loading import LoadFailed
from holdfast.state.own_state import CannotSave
from holdfast.state.random_state import capture_random_state
from holdfast.state.registered import CannotRegister, register
from holdfast.state.saving import Mark, Savable, write_checkpoint

pytestmark = pytest.mark.torch

ALONE = Placement()
MARK = Mark("job", 0, 5, "aa", (), Position(1, 2))


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    )


def step(model, optimizer, inputs=None):
    optimizer.zero_grad()
    model(torch.randn(5, 3) if inputs is None else inputs).sum().backward()
    optimizer.step()


def save(directory, place=ALONE, **objects):
    return write_checkpoint(LocalFolder(directory), Savable(register(objects)), MARK, place)


def load(directory, place=ALONE, **objects):
    return load_checkpoint(LocalFolder(directory), Savable(register(objects)), place)


def same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def account(directory):
    return json.loads((directory / account_file(0)).read_text())


def test_a_fresh_optimizer_takes_up_state_that_is_only_made_by_stepping(tmp_path):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step(model, optimizer)
    save(tmp_path / "c", model=model, optimizer=optimizer)
    other = network(seed=1)
    fresh = torch.optim.AdamW(other.parameters(), lr=0.5)
    assert load(tmp_path / "c", model=other, optimizer=fresh).position == MARK.position
    same(model.state_dict(), other.state_dict())
    assert fresh.param_groups[0]["lr"] == 0.1
    inputs = torch.randn(5, 3)
    step(model, optimizer, inputs)
    step(other, fresh, inputs)
    same(model.state_dict(), other.state_dict())


def test_an_optimizer_that_never_stepped_stays_without_state(tmp_path):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    save(tmp_path / "c", model=model, optimizer=optimizer)
    load(tmp_path / "c", model=model, optimizer=optimizer)
    assert not optimizer.state
    same(before, model.state_dict())


def test_state_of_only_some_parameters_comes_back_for_those(tmp_path):
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    save(tmp_path / "c", model=model, optimizer=optimizer)
    fresh = torch.optim.AdamW(model.parameters())
    load(tmp_path / "c", model=model, optimizer=fresh)
    assert len(fresh.state) == len(optimizer.state) == 4


def test_names_do_not_depend_on_what_is_around_the_model(tmp_path):
    model = network()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer)
    save(tmp_path / "c", model=compiled, optimizer=optimizer)
    other = network(seed=1)
    load(tmp_path / "c", model=other, optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    same(model.state_dict(), other.state_dict())


def test_two_optimizers_of_two_models_do_not_mix(tmp_path):
    models = [network(seed) for seed in (0, 1)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        step(model, optimizer)
    objects = {"a": models[0], "b": models[1], "oa": optimizers[0], "ob": optimizers[1]}
    save(tmp_path / "c", **objects)
    others = {"a": network(2), "b": network(3)}
    others |= {f"o{name}": torch.optim.Adam(others[name].parameters()) for name in "ab"}
    load(tmp_path / "c", **others)
    for name in "ab":
        same(objects[name].state_dict(), others[name].state_dict())


def test_generators_schedulers_and_the_like_come_back(tmp_path):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    generator = torch.Generator().manual_seed(3)
    torch.rand(7, generator=generator)
    schedule.step()
    save(tmp_path / "c", schedule=schedule, generator=generator)
    expected = torch.rand(2, generator=generator)
    again = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    fresh = torch.Generator()
    load(tmp_path / "c", schedule=again, generator=fresh)
    assert again.last_epoch == 1
    assert torch.equal(torch.rand(2, generator=fresh), expected)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_told(tmp_path, number):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    save(tmp_path / "fine", model=model, optimizer=optimizer)
    optimizer.state[model[0].weight]["exp_avg"][1, 1] = number
    save(tmp_path / "ill optimizer", model=model, optimizer=optimizer)
    model[0].weight.data[1, 1] = number
    save(tmp_path / "ill model", model=model)
    assert account(tmp_path / "fine")["finite"]
    assert not account(tmp_path / "ill optimizer")["finite"]
    assert not account(tmp_path / "ill model")["finite"]


def test_infinities_in_a_buffer_are_no_illness(tmp_path):
    model = network()
    model.register_buffer("mask", torch.full((2, 2), float("-inf")))
    save(tmp_path / "c", model=model)
    assert account(tmp_path / "c")["finite"]


def test_plain_parameters_of_several_ranks_stay_each_ranks_own(tmp_path):
    two = [Placement(rank, 2) for rank in range(2)]
    models = [network(seed) for seed in (0, 1)]
    for place, model in zip(two, models, strict=True):
        # No optimizer and no shared tensor: torch's saver would wait for the other rank.
        write_own(tmp_path / "c", place, model)
    for place, model in zip(two, models, strict=True):
        other = network(seed=9)
        load(tmp_path / "c", place, model=other)
        same(model.state_dict(), other.state_dict())
    with pytest.raises(LoadFailed, match="another number of ranks"):
        load(tmp_path / "c", ALONE, model=network())


def write_own(directory, place, model):
    """A rank's files; torch's metadata is overwritten by the second as by rank 0's."""
    (directory / ".metadata").unlink(missing_ok=True)
    save(directory, place, model=model)


def test_a_rank_whose_own_state_is_gone_can_not_load(tmp_path):
    save(tmp_path / "c", model=network())
    own = tmp_path / "c" / "__0_own.pt"
    state = torch.load(own, weights_only=True)
    state["plain"] = json.dumps({**json.loads(state["plain"]), "world_size": 2})
    torch.save(state, own)
    with pytest.raises(LoadFailed, match="rank 1's own state is missing"):
        load(tmp_path / "c", Placement(1, 2), model=network())


def test_a_rank_that_is_new_does_not_draw_the_random_numbers_of_another(tmp_path):
    write_checkpoint(
        LocalFolder(tmp_path / "c"),
        Savable(register({"model": network()})),
        replace(MARK, position=Position(1, 2, capture_random_state(), capture_random_state())),
        ALONE,
    )
    loaded = load(tmp_path / "c", Placement(1, 2), model=network())
    assert (loaded.position.now, loaded.position.pass_start) == (None, None)
    assert loaded.position.taken == 2


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ({"model": torch.nn.Linear(3, 4)}, "has no"),
        ({"model": torch.nn.Linear(4, 3)}, "has no"),
        ({"network": network()}, "'network' is not in the checkpoint"),
        ({"optimizer": torch.optim.SGD(network().parameters())}, "'optimizer' is not in"),
        ({"extra": torch.Generator()}, "'extra' is not in the checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(tmp_path, objects, reason):
    save(tmp_path / "c", model=network())
    with pytest.raises(LoadFailed, match=reason):
        load(tmp_path / "c", **objects)


def test_another_shape_is_told_by_parameter_before_anything_is_touched(tmp_path):
    save(tmp_path / "c", first=torch.nn.Linear(2, 2), model=network())
    first, other = torch.nn.Linear(2, 2), network()
    other[0] = torch.nn.Linear(5, 4)
    before = {key: value.clone() for key, value in first.state_dict().items()}
    with pytest.raises(
        LoadFailed,
        match=r"model 'model': 0\.weight is \[4, 5\] here and \[4, 3\] in the checkpoint",
    ):
        load(tmp_path / "c", first=first, model=other)
    same(before, first.state_dict())


def test_another_shape_of_a_ranks_own_parameters_is_told_too(tmp_path):
    two = [Placement(rank, 2) for rank in range(2)]
    for place in two:
        write_own(tmp_path / "c", place, network())
    other = network()
    other[0] = torch.nn.Linear(5, 4)
    with pytest.raises(LoadFailed, match=r"0\.weight is \[4, 5\] here and \[4, 3\]"):
        load(tmp_path / "c", two[1], model=other)


def test_a_parameter_that_was_not_saved_is_told(tmp_path):
    save(tmp_path / "c", model=network())
    larger = torch.nn.Sequential(*network(), torch.nn.Linear(1, 1))
    with pytest.raises(LoadFailed, match=r"has '3\.weight', which is not in the checkpoint"):
        load(tmp_path / "c", model=larger)


def test_an_object_that_was_not_saved_leaves_the_others_alone(tmp_path):
    save(tmp_path / "c", model=network())
    model = network(seed=1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(LoadFailed, match="'extra' is not in the checkpoint"):
        load(tmp_path / "c", model=model, extra=torch.Generator())
    same(before, model.state_dict())


def test_an_optimizer_with_other_groups_is_refused(tmp_path):
    model = network()
    save(tmp_path / "c", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    parts = [{"params": part} for part in ([model[0].weight], [*model.parameters()][1:])]
    apart = torch.optim.SGD(parts, lr=1.0)
    with pytest.raises(ValueError, match="has 2 groups of parameters, and 1 in the checkpoint"):
        load(tmp_path / "c", model=model, optimizer=apart)


def test_a_small_view_of_a_large_tensor_is_saved_as_what_it_is(tmp_path):
    class Window:
        def state_dict(self):
            return {"part": torch.zeros(1_000_000)[:10]}

        def load_state_dict(self, state):
            self.state = state

    save(tmp_path / "c", window=Window())
    assert (tmp_path / "c" / "__0_own.pt").stat().st_size < 10_000
    again = Window()
    load(tmp_path / "c", window=again)
    assert torch.equal(again.state["part"], torch.zeros(10))


def test_an_optimizer_of_other_parameters_is_refused(tmp_path):
    model = network()
    save(tmp_path / "c", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    fewer = torch.optim.SGD(model[0].parameters(), lr=1.0)
    with pytest.raises(ValueError, match="other parameters"):
        load(tmp_path / "c", model=model, optimizer=fewer)


def test_a_parameter_of_no_attached_model_is_not_saved_half(tmp_path):
    model, margin = network(), torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *margin.parameters()], lr=1.0)
    with pytest.raises(CannotSave, match=r"steps 2 of 8 parameters that no attached model has"):
        save(tmp_path / "c", model=model, optimizer=optimizer)
    assert not (tmp_path / "c" / "__0_own.pt").exists()
    save(tmp_path / "d", model=model, margin=margin, optimizer=optimizer)
    save(tmp_path / "e", optimizer=optimizer)


def test_fsdp_of_the_first_kind_is_refused_by_name():
    from torch.distributed.fsdp import FullyShardedDataParallel

    class Flat(FullyShardedDataParallel):
        def __init__(self):
            torch.nn.Module.__init__(self)

    with pytest.raises(CannotRegister, match="fully_shard"):
        register({"model": Flat()})


class Thing:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_state_that_only_a_pickle_could_hold_is_refused_when_it_is_attached():
    with pytest.raises(
        CannotRegister, match=r"attach\(thing=…\): thing\['f'\]\[1\] is the function print"
    ):
        register({"thing": Thing({"f": [0, print]})})
    odd = torch.optim.SGD([{"params": network().parameters(), "f": print}], lr=1.0)
    with pytest.raises(CannotRegister, match=r"optimizer\['param_groups'\]\[0\]\['f'\] is"):
        register({"optimizer": odd})


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer", "save_checkpoint"),
        ("apex.contrib.optimizers.distributed_fused_adam", "DistributedFusedAdam", "pass save="),
        ("deepspeed.runtime.engine", "DeepSpeedEngine", "the engine's save_checkpoint"),
        ("torchtitan.components.optimizer", "OptimizersContainer", "attach each inner optimizer"),
    ],
)
def test_what_is_known_to_keep_its_state_elsewhere_is_refused_by_name(module, name, instead):
    known = type(name, (Thing,), {"__module__": module})
    own = type("Mine", (known,), {})
    with pytest.raises(CannotRegister, match=rf"a {name} is not what its state_dict.*{instead}"):
        register({"thing": own({})})


def test_an_optimizer_that_does_not_tell_its_state_as_torchs_do_is_refused():
    class Container(torch.optim.Optimizer):  # as torchtitan's: one flat dict of all
        def state_dict(self):
            return {"state.weight.step": 1, "param_groups.weight.lr": 0.1}

    class Named(torch.optim.SGD):  # as torch.distributed.optim's
        def state_dict(self):
            state = super().state_dict()
            return {**state, "param_groups": [{"params": ["weight", "bias"]}]}

    class Sharded(torch.optim.SGD):  # as ZeroRedundancyOptimizer, unless it was told to gather it
        def state_dict(self):
            raise RuntimeError("Optimizer state has not been consolidated")

    class Odd(torch.optim.SGD):
        def state_dict(self):
            raise KeyError("master")

    model = torch.nn.Linear(1, 1)
    for optimizer, reason in (
        (Odd(model.parameters(), lr=0.1), "fails \\(KeyError: 'master'\\); pass save= and load="),
        (Container(model.parameters(), {}), "no 'state' and 'param_groups'; attach each inner"),
        (Named(model.parameters(), lr=0.1), "does not number its parameters"),
        (Sharded(model.parameters(), lr=0.1), "has not been consolidated.; pass save= and load="),
    ):
        with pytest.raises(CannotRegister, match=reason):
            register({"optimizer": optimizer})


def test_an_object_that_can_not_tell_its_state_yet_is_believed(caplog):
    thing = Thing(RuntimeError("not ready"))
    assert register({"thing": thing}).others == {"thing": thing}
    assert "asks thing for its state failed" in caplog.text


def test_a_loader_is_not_asked_for_its_state_when_it_is_attached():
    asked = []

    class Loader(Thing):
        def __iter__(self):
            return iter(())

        def state_dict(self):
            asked.append("and so has started its workers")

    assert register({"loader": Loader({})}).others
    assert not asked


def test_common_schedulers_and_scalers_can_be_attached():
    optimizer = torch.optim.AdamW(network().parameters(), lr=torch.tensor(0.1))
    plain = torch.optim.SGD(network().parameters(), lr=0.1)
    schedules = torch.optim.lr_scheduler
    register(
        {
            "optimizer": optimizer,
            "lambda": schedules.LambdaLR(plain, lambda epoch: 0.9**epoch),
            "cosine": schedules.CosineAnnealingWarmRestarts(plain, 5),
            "steps": schedules.MultiStepLR(plain, [1, 1, 3]),
            "cycle": schedules.OneCycleLR(plain, 0.1, total_steps=9),
            "plateau": schedules.ReduceLROnPlateau(plain),
            "polynomial": schedules.PolynomialLR(plain),
            "sequence": schedules.SequentialLR(
                plain, [schedules.ConstantLR(plain), schedules.ExponentialLR(plain, 0.9)], [2]
            ),
            "swa": torch.optim.swa_utils.SWALR(plain, 0.1),
            "scaler": torch.amp.GradScaler("cpu"),
            "generator": torch.Generator(),
        }
    )
