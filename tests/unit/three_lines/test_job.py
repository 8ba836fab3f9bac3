"""The three lines, in one process and without Holdfast around it."""

import json

import pytest
import torch
from torch.utils.data import DataLoader

import holdfast
from holdfast.contract import page
from holdfast.contract.page import Phase, Word
from holdfast.job import Job
from holdfast.rank import process
from holdfast.recording.interface import Unwatched
from holdfast.recording.recorder import Recorder
from holdfast.state.data_position import Position
from holdfast.state.registered import CannotRegister, register, replicated_parameters
from holdfast.state.resuming import ResumeFailed
from holdfast.state.saving import Savable

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("HOLDFAST_RESUME", "HOLDFAST_CHECKPOINT_DIR", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert process.current() is None


def test_without_holdfast_the_three_lines_are_a_loop():
    model = torch.nn.Linear(1, 1)
    job = holdfast.attach(model=model, optimizer=torch.optim.Adam(model.parameters()))
    assert job.resume() == 0
    seen = []
    for item in job.steps("abcdef", until=4):
        seen.append((job.step, item))
        job.report(loss=torch.tensor(1.0, requires_grad=True))
    assert seen == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert job.step == 4
    assert not job.stopped


def test_a_loader_is_run_pass_after_pass_until_the_step():
    job = holdfast.attach()
    loader = DataLoader(range(6), batch_size=2)
    seen = [(job.step, job.epoch, batch.tolist()) for batch in job.steps(loader, until=5)]
    assert seen == [
        (0, 0, [0, 1]),
        (1, 0, [2, 3]),
        (2, 0, [4, 5]),
        (3, 1, [0, 1]),
        (4, 1, [2, 3]),
    ]


def test_a_loader_is_run_once_when_nothing_is_said_and_epochs_count_in_all():
    loader = DataLoader(range(4), batch_size=2)
    job = holdfast.attach()
    assert len(list(job.steps(loader))) == 2
    assert len(list(job.steps(loader))) == 2
    assert job.epoch == 2
    assert len(list(job.steps(loader, epochs=5))) == 6


def test_a_sequence_ends_where_it_ends():
    assert list(holdfast.attach().steps(range(3), until=9)) == [0, 1, 2]


def test_a_reported_number_that_cannot_be_copied_from_the_gpu_is_no_error_of_the_script(
    monkeypatch, caplog
):
    class OnGpu(torch.Tensor):
        is_cuda = True

    def fail(_):
        raise RuntimeError("CUDA error: operation not permitted")

    monkeypatch.setattr("holdfast.job.PinnedCopies", fail)
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    job = Job(Savable(), recorder)
    for _ in range(2):
        job.report(loss=torch.tensor(1.0).as_subclass(OnGpu))
    assert recorder.word(Word.HOOK_ERRORS) == 2
    assert caplog.text.count("that copies a reported number failed") == 1


def test_a_step_that_was_broken_off_does_not_count():
    job = holdfast.attach()
    for _ in job.steps(range(9)):
        if job.step == 2:
            break
    assert job.step == 2
    assert list(job.steps(range(4))) == [2, 3]


def test_going_back_in_the_data_is_part_of_restoring():
    class Looking:
        def __init__(self):
            self.seen = []

        def __iter__(self):
            self.seen.append(recorder.phase)
            return iter(range(4))

    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    source = Looking()
    job = Job(Savable(), recorder)
    job._position = Position(epoch=0, taken=2)
    recorder.enter(Phase.IDLE)
    assert list(job.steps(source)) == [2, 3]
    assert source.seen == [Phase.RESTORING]
    assert recorder.phase == Phase.IDLE


def test_a_loop_whose_gradients_are_never_used_is_told_so_once(caplog):
    model = torch.nn.Linear(1, 1)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    job = Job(Savable(register({"model": model})), recorder)
    assert len(list(job.steps(range(600)))) == 600
    assert caplog.text.count("the gradients of 256 batches wait for an optimizer") == 1


def test_passes_of_a_sequence_are_refused():
    with pytest.raises(TypeError, match="epochs="):
        holdfast.attach().steps(range(3), epochs=2)


def test_what_has_no_state_is_refused_by_its_name():
    with pytest.raises(CannotRegister, match=r"attach\(vocabulary=…\).*dict"):
        holdfast.attach(vocabulary={})


def test_save_without_load_is_refused():
    with pytest.raises(TypeError, match="belong together"):
        holdfast.attach(save=lambda path, step: None)


def test_none_and_a_plain_loader_need_no_saving():
    job = holdfast.attach(model=None, loader=DataLoader(range(3)))
    assert list(job.steps(range(2))) == [0, 1]


def test_resuming_before_the_ranks_are_joined_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("HOLDFAST_RESUME", '[{"identifier": "a", "path": "/x", "step": 1}]')
    with pytest.raises(ResumeFailed, match="init_process_group"):
        holdfast.attach(model=torch.nn.Linear(1, 1)).resume()


def test_ranks_start_from_nothing_only_where_no_checkpoint_is_left(monkeypatch):
    """One that may not be gone on from is not in the list, but it is there."""
    snapshot = {"identifier": "s", "path": "", "step": -1, "tier": "snapshot", "below": 7}
    monkeypatch.setenv("HOLDFAST_RESUME", json.dumps([snapshot]))
    assert holdfast.attach(model=torch.nn.Linear(1, 1)).resume() == 0
    monkeypatch.setenv("HOLDFAST_RESUME", json.dumps([{**snapshot, "is_last": True}]))
    with pytest.raises(ResumeFailed, match="every checkpoint is from after"):
        holdfast.attach(model=torch.nn.Linear(1, 1)).resume()


@pytest.mark.parametrize("text", ["{", "[1]", '[{"path": "x"}]', "3"])
def test_a_list_of_checkpoints_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("HOLDFAST_RESUME", text)
    with pytest.raises(ResumeFailed, match="HOLDFAST_RESUME"):
        holdfast.attach(model=torch.nn.Linear(1, 1)).resume()


def test_a_model_is_shared_among_ranks_only_when_torch_keeps_it_the_same():
    model = torch.nn.Linear(1, 1)
    assert replicated_parameters(model, world_size=1) == {id(model.weight), id(model.bias)}
    assert not replicated_parameters(model, world_size=2)


def test_a_loss_on_a_gpu_is_told_later_and_never_waited_for(monkeypatch):
    class Copies:
        def __init__(self, torch):
            self.under_way = []

        def start(self, loss, step):
            self.under_way.append((loss, step))

        def report(self, tell):
            for loss, step in self.under_way:
                tell(float(loss.number), step)
            self.under_way.clear()

    class OnGpu(torch.Tensor):
        is_cuda = True

        def item(self):
            raise AssertionError("waited for the GPU")

        __float__ = item

        def detach(self):
            return self

    def loss(number):
        made = torch.Tensor._make_subclass(OnGpu, torch.tensor(number))
        made.number = number
        return made

    told = []
    monkeypatch.setattr("holdfast.job.PinnedCopies", Copies)
    monkeypatch.setattr(Unwatched, "report_loss", lambda self, *seen: told.append(seen))
    job = holdfast.attach()
    for _ in job.steps(range(3)):
        job.report(loss=loss(float(job.step)))
    assert told == [(0.0, 1), (1.0, 2)]


@pytest.mark.parametrize("source", [range(10), DataLoader(range(10), batch_size=None)])
def test_batches_are_passed_over_before_their_step_and_steps_are_not(monkeypatch, source):
    skips = '[{"step": 2, "count": 3}, {"step": 4, "count": 1}]'
    monkeypatch.setenv("HOLDFAST_SKIP_BATCHES", skips)
    job = holdfast.attach()
    seen = [(job.step, int(item)) for item in job.steps(source)]
    assert seen == [(0, 0), (1, 1), (2, 5), (3, 6), (4, 8), (5, 9)]


def test_what_was_passed_over_before_the_step_that_is_resumed_from_is_not_again(monkeypatch):
    monkeypatch.setenv(
        "HOLDFAST_SKIP_BATCHES", '[{"step": 2, "count": 3}, {"step": 5, "count": 1}]'
    )
    job = holdfast.attach()
    job._step, job._position = 3, Position(0, 3)
    assert list(job.steps(range(12))) == [6, 7, 9, 10, 11]


@pytest.mark.parametrize("text", ["{", '[{"step": 1}]', "7", '[{"step": 0, "count": -3}]'])
def test_skips_that_can_not_be_read_are_left_out(monkeypatch, text):
    monkeypatch.setenv("HOLDFAST_SKIP_BATCHES", text)
    assert list(holdfast.attach().steps(range(3))) == [0, 1, 2]


def test_a_loss_and_a_gradient_norm_are_told_apart_or_together(monkeypatch):
    told = []
    for name in ("loss", "gradient", "work"):
        monkeypatch.setattr(
            Unwatched, f"report_{name}", lambda self, *seen, name=name: told.append((name, *seen))
        )
    job = holdfast.attach()
    for _ in job.steps(range(2)):
        job.report(loss=torch.tensor(0.5), grad_norm=2)
        job.report(grad_norm=torch.tensor([3.0]), tokens=4096)
    first = [("loss", 0.5, 1), ("gradient", 2.0, 1), ("gradient", 3.0, 1), ("work", 4096, 0.0, 1)]
    assert told[:4] == first
    assert told[4:] == [(*one[:-1], 2) for one in first]


@pytest.mark.parametrize(
    "lengths", [[3, 5], (3, 5), torch.tensor([3, 5]), torch.tensor([[3], [5]])]
)
def test_lengths_of_sequences_are_told_as_tokens_and_squares(monkeypatch, lengths):
    told = []
    monkeypatch.setattr(Unwatched, "report_work", lambda self, *seen: told.append(seen))
    job = holdfast.attach()
    for _ in job.steps(range(1)):
        job.report(lengths=lengths)
        job.report(lengths=lengths, tokens=torch.tensor(6))
        job.report(lengths=[])
    assert told == [(8, 34.0, 1), (6.0, 34.0, 1), (0, 0, 1)]


def test_beside_lengths_tokens_on_a_device_are_not_waited_for(monkeypatch):
    told = []
    monkeypatch.setattr(Unwatched, "report_work", lambda self, *seen: told.append(seen))
    job = holdfast.attach()
    elsewhere = torch.ones((), device="meta")  # to read it is an error, on a GPU it is a wait
    for _ in job.steps(range(1)):
        job.report(lengths=[3, 5], tokens=elsewhere)
    assert told == [(8, 34.0, 1)]
