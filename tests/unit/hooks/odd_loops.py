"""Training loops of every kind, each run in its turn under the three lines with torch's hooks in
place; prints as JSON at which steps each one came to a boundary.
"""

import itertools
import json
import os
from collections.abc import Callable
from typing import Any

import torch

from holdfast.contract import page
from holdfast.guard import Guard
from holdfast.job import Job
from holdfast.loop import Boundary
from holdfast.patches import backward, optimizer
from holdfast.recording.recorder import Recorder
from holdfast.state.registered import register
from holdfast.state.saving import Savable

BATCHES = 9
LOOPS: dict[str, Callable[[], object]] = {}
CURRENT: list[Recorder] = []


def loop(function):
    LOOPS[function.__name__] = function
    return function


def job_of(save=False, **state):
    functions = (lambda path, step: None, lambda path, step: None) if save else (None, None)
    return Job(Savable(register(state), *functions), CURRENT[0])


def build(width=3):
    return torch.nn.Linear(width, width)


def loss_of(model):
    return model(torch.randn(4, 3)).square().mean()


def one(**options):
    model = build()
    made = torch.optim.AdamW(model.parameters())
    return model, made, job_of(model=model, optimizer=made, **options)


@loop
def zeroed_at_the_head():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        made.zero_grad()
        loss_of(model).backward()
        made.step()


@loop
def zeroed_at_the_end():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        loss_of(model).backward()
        made.step()
        made.zero_grad()


@loop
def zeroed_in_place():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        made.zero_grad(set_to_none=False)
        loss_of(model).backward()
        made.step()


@loop
def gathered_over_four():
    model, made, job = one()
    for turn in job.steps(range(BATCHES)):
        loss_of(model).backward()
        if turn % 4 == 3:
            made.step()
            made.zero_grad()


@loop
def gathered_over_four_and_zeroed_at_the_head():
    model, made, job = one()
    for turn in job.steps(range(BATCHES)):
        if turn % 4 == 0:
            made.zero_grad()
        loss_of(model).backward()
        if turn % 4 == 3:
            made.step()


@loop
def gathered_by_own_functions_alone():
    """Nothing is named: save= and load= only."""
    model = build()
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in job_of(save=True).steps(range(BATCHES)):
        loss_of(model).backward()
        if turn % 4 == 3:
            made.step()
            made.zero_grad()


@loop
def the_last_window_is_dropped():
    model, made, job = one()
    for turn in job.steps(range(BATCHES + 5)):
        in_pass = turn % 6  # windows of four: of each pass the last two batches come to nothing
        if in_pass == 0:
            made.zero_grad()
        loss_of(model).backward()
        if in_pass == 3:
            made.step()
            made.zero_grad()


@loop
def the_last_window_is_stepped():
    model, made, job = one()
    for turn in job.steps(range(BATCHES + 5)):
        loss_of(model).backward()
        if turn % 6 in (3, 5):
            made.step()
            made.zero_grad()


@loop
def gathered_by_hand_from_autograd_grad():
    model, made, job = one()
    for turn in job.steps(range(BATCHES)):
        parameters = list(model.parameters())
        for p, g in zip(parameters, torch.autograd.grad(loss_of(model), parameters), strict=True):
            p.grad = g if p.grad is None else p.grad + g
        if turn % 4 == 3:
            made.step()
            made.zero_grad()


def gathered_outside(gradients_of, *ends):
    """Into buffers of the script's own, so that no `.grad` is there between two batches."""
    model, made, job = one()
    parameters = list(model.parameters())
    buffers = [torch.zeros_like(p) for p in parameters]
    for turn in itertools.chain.from_iterable(job.steps(range(end)) for end in ends or [BATCHES]):
        for buffer, gradient in zip(buffers, gradients_of(model, parameters), strict=True):
            buffer += gradient
        if turn % 4 == 3:
            for p, buffer in zip(parameters, buffers, strict=True):
                p.grad = buffer.clone()
                buffer.zero_()
            made.step()
            made.zero_grad()


def by_autograd(model, parameters):
    return torch.autograd.grad(loss_of(model), parameters)


def by_function(model, parameters):
    def loss(values):
        return torch.func.functional_call(model, values, (torch.ones(4, 3),)).square().mean()

    return torch.func.grad(loss)(dict(model.named_parameters())).values()


def by_main_grad(model, parameters):
    """As Megatron's and apex's do."""
    loss_of(model).backward()
    taken = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return taken


@loop
def gathered_outside_by_autograd_grad():
    gathered_outside(by_autograd)


@loop
def gathered_outside_by_functional_grad():
    gathered_outside(by_function)


@loop
def gathered_outside_by_backward():
    gathered_outside(by_main_grad)


@loop
def a_loop_begins_again_inside_a_window():
    gathered_outside(by_autograd, 6, 12)


@loop
def a_loop_begins_again():
    model, made, job = one()
    for last in (3, 6):
        for _ in job.steps(range(last)):
            loss_of(model).backward()
            made.step()
            made.zero_grad()


class WithCopies(torch.optim.Optimizer):
    """Steps copies of the weights, as those for mixed precision do; its own step is not torch's."""

    def __init__(self, parameters):
        parameters = list(parameters)
        self.param_groups, self.state = [{"params": parameters}], {}
        self.copies = [p.detach().clone() for p in parameters]
        self.inner = torch.optim.SGD(self.copies, lr=0.1)

    def state_dict(self):
        return self.inner.state_dict()

    def step(self):
        pairs = list(zip(self.param_groups[0]["params"], self.copies, strict=True))
        for p, copy in pairs:
            copy.grad, p.grad = p.grad, None
        self.inner.step()
        for p, copy in pairs:
            p.data.copy_(copy)


@loop
def an_optimizer_with_copies_of_the_weights():
    model = build()
    made = WithCopies(model.parameters())
    for turn in job_of(model=model, optimizer=made).steps(range(BATCHES)):
        loss_of(model).backward()
        if turn % 2:
            made.step()


def probe(model=None):
    """A backward pass for another purpose: a saliency map, a batch that is made adversarial."""
    batch = torch.randn(4, 3, requires_grad=True)
    (build() if model is None else model)(batch).sum().backward()


@loop
def another_model_is_probed_behind_the_step():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        made.zero_grad()
        loss_of(model).backward()
        made.step()
        probe()


@loop
def another_model_is_probed_behind_the_step_and_zeroing_in_place():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        loss_of(model).backward()
        made.step()
        made.zero_grad(set_to_none=False)
        probe()


@loop
def the_same_model_is_probed_behind_the_step():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        made.zero_grad()
        loss_of(model).backward()
        made.step()
        probe(model)


@loop
def the_next_window_begins_behind_the_step():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        loss_of(model).backward()
        made.step()
        made.zero_grad()
        loss_of(model).backward()


@loop
def the_next_window_begins_behind_the_step_in_other_weights():
    model, head = build(), build()
    made = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    job = job_of(model=model, head=head, optimizer=made)
    for _ in job.steps(range(BATCHES)):
        loss_of(model).backward()
        made.step()
        made.zero_grad()
        loss_of(head).backward()


@loop
def a_scaler_passes_over_steps():
    model, made, job = one()
    scaler = torch.amp.GradScaler("cpu")
    for turn in job.steps(range(BATCHES)):
        made.zero_grad()
        loss = loss_of(model) * (float("inf") if turn in (0, 1, 5) else 1.0)
        scaler.scale(loss).backward()
        scaler.step(made)
        scaler.update()


@loop
def a_scaler_passes_over_windows():
    model, made, job = one()
    scaler = torch.amp.GradScaler("cpu")
    for turn in job.steps(range(BATCHES)):
        loss = loss_of(model) * (float("inf") if turn in (0, 5) else 1.0)
        scaler.scale(loss).backward()
        if turn % 4 == 3:
            scaler.step(made)
            scaler.update()
            made.zero_grad()


@loop
def batches_are_skipped():
    model, made, job = one()
    for turn in job.steps(range(BATCHES)):
        if turn in (2, 3):
            continue
        made.zero_grad()
        loss_of(model).backward()
        made.step()


@loop
def bad_gradients_are_thrown_away():
    model, made, job = one()
    for turn in job.steps(range(BATCHES)):
        made.zero_grad()
        loss_of(model).backward()
        if turn in (2, 3):
            continue
        made.step()


def gan(job_turn, wrap=lambda model: model, **zeroing):
    generator, critic = wrap(build()), wrap(build())
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    job = job_of(generator=generator, critic=critic, g=of_generator, d=of_critic)

    def train_critic(detached):
        of_critic.zero_grad(**zeroing)
        fake = generator(torch.randn(4, 3))
        critic(fake.detach() if detached else fake).mean().backward()
        of_critic.step()

    def train_generator():
        of_generator.zero_grad(**zeroing)
        (-critic(generator(torch.randn(4, 3)))).mean().backward()
        of_generator.step()

    for turn in job.steps(range(BATCHES)):
        job_turn(turn, train_critic, train_generator)


@loop
def a_gan():
    def both(turn, train_critic, train_generator):
        train_critic(detached=True)
        train_generator()

    gan(both)


def critic_first(turn, train_critic, train_generator):
    train_critic(detached=True)
    train_generator()


@loop
def a_gan_zeroed_in_place():
    gan(critic_first, set_to_none=False)


@loop
def a_gan_whose_gradients_lie_in_the_buckets_of_ddp():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )

    def wrap(model):
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    gan(critic_first, wrap)


@loop
def another_optimizer_gathers_four_and_zeroes_in_place():
    model, critic = build(), build()
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    job = job_of(model=model, critic=critic, optimizer=made, other=of_critic)
    for turn in job.steps(range(BATCHES)):
        made.zero_grad(set_to_none=False)
        if turn % 4 == 0:
            of_critic.zero_grad(set_to_none=False)
        critic(model(torch.randn(4, 3)).detach()).square().mean().backward()
        loss_of(model).backward()
        made.step()
        if turn % 4 == 3:
            of_critic.step()


@loop
def a_gan_that_detaches_nothing():
    def both(turn, train_critic, train_generator):
        train_critic(detached=False)
        train_generator()

    gan(both)


@loop
def a_gan_whose_critic_trains_more_often():
    def turn_of(turn, train_critic, train_generator):
        train_critic(detached=True)
        if turn % 4 == 3:
            train_generator()

    gan(turn_of)


@loop
def a_gan_in_alternate_turns():
    def turn_of(turn, train_critic, train_generator):
        if turn % 2:
            train_generator()
        else:
            train_critic(detached=True)

    gan(turn_of)


@loop
def one_optimizer_steps_every_time_and_one_gathers_four():
    model, slow = build(), build()
    quick_made = torch.optim.SGD(model.parameters(), lr=0.1)
    slow_made = torch.optim.SGD(slow.parameters(), lr=0.1)
    job = job_of(model=model, slow=slow, optimizer=quick_made, other=slow_made)
    for turn in job.steps(range(BATCHES)):
        slow(model(torch.randn(4, 3))).square().mean().backward()
        quick_made.step()
        quick_made.zero_grad()
        if turn % 4 == 3:
            slow_made.step()
            slow_made.zero_grad()


@loop
def an_optimizer_is_put_aside_for_another():
    model = build()
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.Adam(model.parameters())
    job = job_of(model=model, first=first, second=second)
    for turn in job.steps(range(BATCHES)):
        made = first if turn < 3 else second
        made.zero_grad()
        loss_of(model).backward()
        made.step()


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimisation as it is commonly written."""

    param_groups: list[dict[str, Any]]

    def __init__(self, parameters, base):
        super().__init__(parameters, {})
        self.base = base(self.param_groups, lr=0.1)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["old"] = p.clone()
            p.add_(p.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.param_groups[0]["params"]:
            p.copy_(self.state[p]["old"])
        self.base.step()


@loop
def sam():
    model = build()
    made = Sam(model.parameters(), torch.optim.SGD)
    job = job_of(model=model, optimizer=made)
    for _ in job.steps(range(BATCHES)):
        made.zero_grad()
        loss_of(model).backward()
        made.first_step()
        loss_of(model).backward()
        made.second_step()


@loop
def lbfgs():
    model = build()
    made = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    job = job_of(model=model, optimizer=made)
    for _ in job.steps(range(BATCHES)):

        def closure():
            made.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        made.step(closure)


@loop
def steps_inside_the_backward_pass():
    model = build()
    made = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        made[parameter].step()
        made[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    job = job_of(model=model, **{f"o{n}": o for n, o in enumerate(made.values())})
    for _ in job.steps(range(BATCHES)):
        loss_of(model).backward()


@loop
def an_inner_optimizer_for_each_batch():
    model, made, job = one()
    for _ in job.steps(range(BATCHES)):
        inner = build()
        inner_made = torch.optim.SGD(inner.parameters(), lr=0.1)
        loss_of(inner).backward()
        inner_made.step()
        made.zero_grad()
        (loss_of(model) + loss_of(inner)).backward()
        made.step()


@loop
def weights_are_updated_by_hand():
    model = build()
    for turn in job_of(model=model).steps(range(BATCHES)):
        loss_of(model).backward()
        if turn % 4 != 3:
            continue
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad.zero_()


class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p.add_(p.grad, alpha=-0.1)


@loop
def an_optimizer_compiled_whole():
    model = build()
    made = Own(model.parameters())
    step = torch.compile(made.step, fullgraph=True, backend="aot_eager")
    job = job_of(model=model, optimizer=made)
    for turn in job.steps(range(BATCHES)):
        loss_of(model).backward()
        if turn % 2:
            step()
            made.zero_grad()


@loop
def no_training_at_all():
    for _ in job_of(save=True).steps(range(BATCHES)):
        pass


@loop
def somebody_elses_loop():
    model, made, job = one()
    job.start_loop()
    for turn in range(BATCHES):
        loss_of(model).backward()
        if turn % 4 == 3:
            made.step()
            made.zero_grad()
        job.end_step()


def boundaries_of(function):
    seen = []

    def cross(self, step, position):
        seen.append(step)
        return True

    Boundary.cross = cross  # type: ignore[method-assign]
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    errors = []
    guard = Guard(lambda: errors.append(1))
    optimizer.install(torch, recorder, guard)
    backward.install(torch, recorder, guard)
    CURRENT.append(recorder)
    torch.manual_seed(0)
    function()
    assert not errors
    return seen


def main():
    """Each in a process of its own, as hooks stay for good."""
    found = {}
    for name, function in LOOPS.items():
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps(boundaries_of(function)).encode())
            os._exit(0)
        os.close(writing)
        os.wait()
        with open(reading) as answer:
            found[name] = json.loads(answer.read() or "null")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
