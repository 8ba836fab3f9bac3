"""At which steps loops of every kind come to a boundary: where no gradient waits."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.unit.hooks import odd_loops

from holdfast.recording.waiting_gradients import MOST_GATHERED, WaitingGradients

pytestmark = pytest.mark.torch

EVERY = [*range(odd_loops.BATCHES + 1)]
EVERY_FOURTH = EVERY[::4]

EXPECTED = {
    "zeroed_at_the_head": EVERY,
    "zeroed_at_the_end": EVERY,
    "zeroed_in_place": EVERY,
    "gathered_over_four": EVERY_FOURTH,
    "gathered_over_four_and_zeroed_at_the_head": EVERY_FOURTH,
    "gathered_by_own_functions_alone": EVERY_FOURTH,
    "the_last_window_is_dropped": [0, 4, 10],
    "the_last_window_is_stepped": [0, 4, 6, 10, 12],
    "gathered_by_hand_from_autograd_grad": EVERY_FOURTH,
    "gathered_outside_by_autograd_grad": EVERY_FOURTH,
    "gathered_outside_by_functional_grad": EVERY_FOURTH,
    "gathered_outside_by_backward": EVERY_FOURTH,
    "a_loop_begins_again_inside_a_window": [0, 4, 8, 12],
    "a_loop_begins_again": [0, 1, 2, 3, 3, 4, 5, 6],
    "an_optimizer_with_copies_of_the_weights": EVERY[::2],
    "another_model_is_probed_behind_the_step": EVERY,
    "another_model_is_probed_behind_the_step_and_zeroing_in_place": EVERY,
    # As with a GAN: that the gradients are thrown away is known once it was seen.
    "the_same_model_is_probed_behind_the_step": [0, *EVERY[2:]],
    "the_next_window_begins_behind_the_step": [0],
    "the_next_window_begins_behind_the_step_in_other_weights": [0],
    "a_scaler_passes_over_steps": EVERY,
    "a_scaler_passes_over_windows": EVERY_FOURTH,
    "batches_are_skipped": [0, 1, 2, *EVERY[5:]],
    "bad_gradients_are_thrown_away": [0, 1, 2, 5, 6, 7, 8, 9],
    # That the gradients which the generator leaves are thrown away is known once it was seen.
    "a_gan": [0, *EVERY[2:]],
    "a_gan_zeroed_in_place": [0, *EVERY[2:]],
    "a_gan_whose_gradients_lie_in_the_buckets_of_ddp": [0, *EVERY[2:]],
    "another_optimizer_gathers_four_and_zeroes_in_place": EVERY_FOURTH,
    "a_gan_that_detaches_nothing": [0, *EVERY[2:]],
    "a_gan_whose_critic_trains_more_often": [0, 1, 2, 3, *EVERY[5:]],
    "a_gan_in_alternate_turns": [0, 1, *EVERY[3:]],
    "one_optimizer_steps_every_time_and_one_gathers_four": EVERY_FOURTH,
    "an_optimizer_is_put_aside_for_another": EVERY,
    "sam": EVERY,
    "lbfgs": EVERY,
    "steps_inside_the_backward_pass": EVERY,
    "an_inner_optimizer_for_each_batch": EVERY,
    "weights_are_updated_by_hand": EVERY_FOURTH,
    "an_optimizer_compiled_whole": EVERY[::2],
    "no_training_at_all": EVERY,
    "somebody_elses_loop": EVERY_FOURTH,
}


@pytest.fixture(scope="module")
def found():
    command = [sys.executable, "-m", odd_loops.__name__]
    root = Path(__file__).parents[3]  # unit tests run from an empty folder, too
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return json.loads(ended.stdout)


@pytest.mark.parametrize("name", odd_loops.LOOPS)
def test_a_loop_comes_to_a_boundary_only_where_no_gradient_waits(found, name):
    assert found[name] == EXPECTED[name]


@pytest.fixture
def captured():
    """What captures parts of a step in a CUDA graph; its backward pass and its optimizer."""
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = WaitingGradients()
    gradients.expect([optimizer])

    def capture(*parts):
        gradients.is_capturing = lambda: True
        for part in parts:
            part()
        gradients.is_capturing = lambda: False
        return gradients

    return capture, gradients.note_backward, lambda: gradients.note_step(optimizer)


def test_a_step_that_is_replayed_whole_is_silent_and_every_turn_a_boundary(captured):
    capture, backward, step = captured
    gradients = capture(backward, step)
    assert [gradients.end_turn() for _ in range(4)] == [False] * 4


def test_where_only_the_backward_pass_is_replayed_the_optimizer_makes_the_boundary(captured):
    capture, backward, step = captured
    gradients = capture(backward)
    step()
    waits = [gradients.end_turn()]
    for turn in range(1, 6):
        if turn % 3 == 0:
            step()
        waits.append(gradients.end_turn())
    assert waits == [False, True, True, False, True, True]


def test_batches_without_a_step_count_after_so_many_until_an_optimizer_steps_again():
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    gradients = WaitingGradients()
    gradients.expect([optimizer])
    assert not gradients.end_turn(is_turn=False)
    assert all(gradients.end_turn() for _ in range(MOST_GATHERED))
    assert not any(gradients.end_turn() for _ in range(3))
    gradients.note_step(optimizer)
    assert [gradients.end_turn() for _ in range(3)] == [False, True, True]


def test_where_only_a_model_is_named_a_batch_without_gradients_needs_no_step():
    gradients = WaitingGradients()
    gradients.expect([torch.nn.Linear(2, 2)])
    assert not any(gradients.end_turn() for _ in range(3))


def in_a_thread(task):
    thread = threading.Thread(target=task)
    thread.start()
    thread.join()


def trained_parameter():
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return parameter


def test_what_another_thread_trains_is_no_step_of_the_loop():
    gradients = WaitingGradients()
    gradients.expect([])
    gradients.note_backward()
    other = torch.optim.SGD([trained_parameter()], lr=0.1)
    in_a_thread(lambda: gradients.note_step(other))
    assert gradients.end_turn()


def test_a_backward_pass_of_another_thread_leaves_the_loop_its_boundary():
    own = torch.optim.SGD([trained_parameter()], lr=0.1)
    gradients = WaitingGradients()
    gradients.expect([])
    gradients.note_step(own)
    in_a_thread(gradients.note_backward)
    assert not gradients.end_turn()


def test_a_step_in_a_thread_of_the_backward_engine_is_one_of_the_loop():
    own = torch.optim.SGD([trained_parameter()], lr=0.1)
    gradients = WaitingGradients()
    gradients.expect([own])
    gradients.is_training = lambda: True
    gradients.note_backward()
    in_a_thread(lambda: gradients.note_step(own))
    assert not gradients.end_turn()


def test_an_optimizer_that_is_heard_while_the_others_are_looked_at_harms_nothing():
    made: list[torch.optim.SGD | None] = []

    class Heard(torch.optim.SGD):
        """As it is looked at, another one steps, in another thread say."""

        def __getattribute__(self, name):
            if name == "param_groups" and made and len(made) < 9:
                made.append(torch.optim.SGD([trained_parameter()], lr=0.1))
                gradients.note_step(made[-1])
            return super().__getattribute__(name)

    first, second = (Heard([trained_parameter()], lr=0.1) for _ in range(2))
    gradients = WaitingGradients()
    gradients.expect([first, second])
    for one in (first, second):
        gradients.note_step(one)
    gradients.note_backward()
    made.append(None)
    assert not gradients.end_turn()
    assert len(made) > 1


def test_a_parameter_that_was_made_for_inference_is_looked_at_like_any_other():
    with torch.inference_mode():
        parameter = torch.nn.Parameter(torch.ones(3))
    model = torch.nn.Module()
    model.parameter = parameter
    gradients = WaitingGradients()
    gradients.expect([model])
    assert not any(gradients.end_turn() for _ in range(2))
