"""The three lines: name what to save, ask where to begin, wrap the loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from holdfast.contract import environment, switches
from holdfast.contract.page import Flag, Phase
from holdfast.contract.storage import absolute
from holdfast.guard import Guard
from holdfast.loop import Boundary
from holdfast.rank import termination
from holdfast.recording.device_numbers import PinnedCopies, Tell
from holdfast.recording.interface import Recording, Unwatched, count_error, recording
from holdfast.recording.placement import Placement, read_placement, read_write_timeout_s
from holdfast.recording.step_flops import tell_flops
from holdfast.recording.waiting_gradients import MOST_GATHERED
from holdfast.snapshots.found import read_slots_of_before
from holdfast.snapshots.schedule import has_snapshots, read_rounds
from holdfast.state.batch_skips import parse_skips
from holdfast.state.data_position import (
    Feed,
    LoaderFeed,
    Position,
    SequenceFeed,
    restore_random_numbers,
)
from holdfast.state.random_state import capture_random_state
from holdfast.state.registered import register
from holdfast.state.resuming import parse_candidates, read_key, resume
from holdfast.state.saving import LoadFunction, Savable, SaveFunction

log = logging.getLogger(__name__)

_DATA, _FORWARD = Phase.DATA, Phase.FORWARD

_NO_BOUNDARY = (
    f"the gradients of {MOST_GATHERED} batches wait for an optimizer: none of those attached was "
    "heard to step, or a backward pass after its step left gradients for the next one. Meanwhile "
    "there was no snapshot, no checkpoint and no ordered stop. Only a torch.optim.Optimizer is "
    "heard; for any other, name the model in attach() and set its gradients to None when they are "
    "used. From now on a batch without a step counts where the parameters of the attached "
    "optimizers hold no gradients"
)

T = TypeVar("T")


def attach(
    *,
    save: SaveFunction | None = None,
    load: LoadFunction | None = None,
    flops_per_step: float | None = None,
    flops_per_token: float | None = None,
    **state: Any,
) -> Job:
    """Name what shall survive: anything with state_dict and load_state_dict, by keyword.

        job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)

    Models and optimizers may be sharded (DTensor) or replicated (DDP). `save(path, step)` and
    `load(path, step)` are called on every rank, in place of or beside named state; `save` returns
    when its files are on storage. Raises CannotRegister for what can't be saved.
    `flops_per_step`, or `flops_per_token` with the tokens of `job.report`: floating-point
    operations of this rank, for the utilisation that is told; by default 6 for each parameter and
    token.
    """
    if (save is None) != (load is None):
        raise TypeError("attach: save= and load= belong together; only one of them was given")
    recorder = recording()
    if flops_per_step is not None:
        tell_flops(recorder, flops_per_step)
    if flops_per_token is not None:
        recorder.note_flops_per_token(flops_per_token)
    return Job(Savable(register(state), save, load), recorder)


class Job:
    """One attempt of the job, in this rank. Without Holdfast around it, only a loop."""

    def __init__(self, savable: Savable, recording: Recording) -> None:
        self._savable = savable
        self._recording = recording
        self._boundary: Boundary | None = None
        self._feed: Feed | None = None
        self._position: Position | None = None
        guard = Guard(lambda: count_error(recording))
        self._losses = _Reported(recording.report_loss, guard)
        self._gradients = _Reported(recording.report_gradient, guard)
        self._tokens = _Reported(lambda count, step: recording.report_work(count, 0.0, step), guard)
        self._step = 0
        self._epoch = 0
        self._stopped = False
        self._gathered = 0
        # What can't be found out counts as waiting, too.
        self._ask_gradients = guard.wrap("that looks for gradients", recording.gradients_wait, True)
        if savable:
            named = savable.registered
            recording.expect_steps_of((named.optimizers or named.models).values())
            recording.add_flag(Flag.STATE_REGISTERED)
            termination.hold(recording)
            if not isinstance(recording, Unwatched) and not switches.is_on("optimizer"):
                log.warning(
                    "holdfast: %s leaves out optimizer: no step of one is heard, so that gradients "
                    "seem to wait unless a weight is seen to change, and then there is no "
                    "snapshot, no checkpoint and no ordered stop",
                    environment.HOOKS,
                )

    @property
    def step(self) -> int:
        """Number of the step being run, from 0 and across attempts; that many are completed."""
        return self._step

    @property
    def epoch(self) -> int:
        """Number of the pass over the loader, from 0 and across attempts."""
        return self._epoch if self._feed is None else self._feed.epoch

    @property
    def stopped(self) -> bool:
        """Whether the loop ended because Holdfast was asked to stop the job."""
        return self._stopped

    def resume(self) -> int:
        """Load the newest snapshot or checkpoint that all ranks can; answers its step, 0 for none.

        Call it once, on every rank, after init_process_group and before the loop. Raises
        ResumeFailed when there are checkpoints but none could be loaded.
        """
        candidates = parse_candidates(os.environ.get(environment.RESUME, ""))
        boundary = self._ready()
        found = resume(
            candidates,
            self._savable,
            boundary.place,
            self._recording,
            read_key(os.environ),
            read_slots_of_before(os.environ, boundary.place.rank),
        )
        if found is not None:
            boundary.go_on_from(found.ancestors, found.snapshot)
            self._step = found.loaded.step
            self._position = found.loaded.position
            self._epoch = self._position.epoch
            restore_random_numbers(self._position)
        return self._step

    def steps(
        self, source: Iterable[T], *, until: int | None = None, epochs: int | None = None
    ) -> Iterator[T]:
        """The batches of `source`, each a step, going on where the last attempt was saved.

        What is ordered for a step is done before the next batch is asked for, once no gradients
        wait for their optimizer: where those of several batches are gathered, behind the last one.

        A sequence (a list, `range(n)`) is indexed by step. A loader is run pass after pass, with
        `set_epoch` where its sampler has one, until `until` steps or `epochs` passes are complete
        in all; one pass when neither is given. Keep passes inside: after a resume, a loop around
        this call would start counting anew.
        """
        boundary = self._ready()
        self._recording.add_flag(Flag.LOOP_WRAPPED)
        termination.look_again(self._recording)
        feed = self._feed_from(source, until, epochs, boundary.place)
        self._feed = feed
        return self._run(feed, until, boundary)

    def start_loop(self) -> None:
        """A loop that someone else owns, a framework's trainer say, begins; see `end_step`.

        Collective the first time, like `resume`, which comes before it.
        """
        boundary = self._ready()
        self._recording.add_flag(Flag.LOOP_WRAPPED)
        termination.look_again(self._recording)
        if parse_skips(os.environ.get(environment.SKIPS, ""), self._step):
            log.warning("holdfast: no batches are passed over: this loop's data is not Holdfast's")
        self._recording.enter(Phase.DATA)
        if not self._gradients_wait(is_turn=False):
            self._cross(boundary)

    def end_step(self, *, is_boundary: bool = False) -> bool:
        """One more step of that loop is completed; False: leave the loop.

        To be called on every rank after each of its steps. Where in the data it is, whoever owns
        the loop saves and restores; the random numbers are kept here. `is_boundary`: whoever owns
        the loop knows that no gradient waits for its optimizer; else that is found out.
        """
        self._step += 1
        if not self._gradients_wait() or is_boundary:
            self._cross(self._ready())
        self._recording.end_step(self._step, _DATA)
        return not self._stopped

    def end_loop(self) -> None:
        """That loop is over: what was ordered for a later step will not be saved."""
        self._ready().leave()
        self._recording.enter(Phase.IDLE)

    def restore_random_numbers(self) -> None:
        """Put the generators back once more to where the checkpoint had them, if there was one.

        For a framework that draws from them between `resume` and its first step.
        """
        if self._position is not None:
            restore_random_numbers(self._position)

    def report(
        self,
        *,
        loss: Any = None,
        grad_norm: Any = None,
        tokens: Any = None,
        lengths: Any = None,
    ) -> None:
        """Tell the loss of this step, the norm of its gradients, its tokens; on every rank.

        A number or a tensor of one. Never waits for a GPU: from there it is copied meanwhile, and
        told at a later step. Tokens are those of this rank's own part of the batch; where several
        ranks work on the same part (tensor or pipeline parallel), one of them tells it.

        lengths: of the sequences in this rank's part of the batch, a list or a tensor on the host.
        With them a rank whose sequences are long is not taken for a slow one: their sum is its
        tokens, unless those are told too (on the host), and the sum of their squares is what
        attention works on.
        """
        if loss is not None:
            self._losses.tell(loss, self._step + 1)
        if grad_norm is not None:
            self._gradients.tell(grad_norm, self._step + 1)
        if lengths is not None:
            self._tell_lengths(lengths, tokens)
        elif tokens is not None:
            self._tokens.tell(tokens, self._step + 1)

    def _tell_lengths(self, lengths: Any, tokens: Any) -> None:
        if isinstance(lengths, torch.Tensor):
            if not lengths.is_cpu:  # too late for the record when it arrives
                self._tokens.tell(lengths.sum() if tokens is None else tokens, self._step + 1)
                return
            lengths = lengths.flatten().tolist()
        squares = sum(float(length) * length for length in lengths)
        is_elsewhere = isinstance(tokens, torch.Tensor) and not tokens.is_cpu
        # Tokens that lie on a GPU are not waited for: what the lengths say is near enough.
        count = sum(lengths) if tokens is None or is_elsewhere else float(tokens)
        self._recording.report_work(count, squares, self._step + 1)

    def _run(self, feed: Feed, until: int | None, boundary: Boundary) -> Iterator[Any]:
        def position() -> Position:
            return feed.position(boundary.place.world_size)

        enter = self._recording.enter
        skips = parse_skips(os.environ.get(environment.SKIPS, ""), self._step)
        goes_on = True
        try:
            enter(Phase.DATA)
            if not self._gradients_wait(is_turn=False):
                goes_on = self._goes_on(boundary.cross(self._step, position))
            while goes_on and (until is None or self._step < until):
                try:
                    if skips:
                        self._pass_over(feed, skips)
                    batch = feed.take()
                except StopIteration:
                    break
                enter(_FORWARD)
                yield batch
                self._step += 1
                if not self._gradients_wait():
                    goes_on = self._goes_on(boundary.cross(self._step, position))
                # Only now: what is published as completed is also kept in a snapshot.
                self._recording.end_step(self._step, _DATA)
        finally:
            boundary.leave()
            enter(Phase.IDLE)

    def _gradients_wait(self, is_turn: bool = True) -> bool:
        waits = self._ask_gradients(is_turn)
        before, self._gathered = self._gathered, self._gathered + 1 if waits else 0
        if self._gathered == MOST_GATHERED:
            log.warning("holdfast: %s", _NO_BOUNDARY)
            self._recording.say_unrestorable([_NO_BOUNDARY, *self._unrestorable()])
        elif before >= MOST_GATHERED and not waits:
            self._recording.say_unrestorable(self._unrestorable())
        return waits

    def _unrestorable(self) -> list[str]:
        return [] if self._boundary is None else self._boundary.unrestorable

    def _pass_over(self, feed: Feed, skips: dict[int, int]) -> None:
        """Leave out the batches that are to be left out before this step's."""
        if (count := skips.pop(self._step, 0)) > 0:
            if self._ready().place.rank == 0:
                log.warning(
                    "holdfast: %d batches are passed over before step %d", count, self._step
                )
            before = self._recording.enter(Phase.RESTORING)
            try:
                feed.pass_over(count)
            finally:
                self._recording.enter(before)

    def _cross(self, boundary: Boundary) -> None:
        def position() -> Position:
            return Position(0, 0, now=capture_random_state(), world_size=boundary.place.world_size)

        self._goes_on(boundary.cross(self._step, position))

    def _goes_on(self, goes_on: bool) -> bool:
        self._stopped = not goes_on
        return goes_on

    def _feed_from(
        self, source: Iterable[Any], until: int | None, epochs: int | None, place: Placement
    ) -> Feed:
        position, self._position = self._position, None
        if isinstance(source, Sequence):
            if epochs is not None:
                raise TypeError("steps: a sequence is indexed by step; epochs= needs a loader")
            feed: Feed = SequenceFeed(source, self._step)
        else:
            first = self.epoch
            last = first + 1 if epochs is None and until is None else epochs
            feed = LoaderFeed(source, first, last)
        if position is not None:
            self._go_back(feed, position, place.world_size)
        return feed

    def _go_back(self, feed: Feed, position: Position, world_size: int) -> None:
        # Passing over many batches may take minutes: no step lasts as long.
        before = self._recording.enter(Phase.RESTORING)
        try:
            feed.go_back(position, world_size)
        finally:
            self._recording.enter(before)

    def _ready(self) -> Boundary:
        """Find the other ranks; collective the first time, once torch.distributed is up."""
        if self._boundary is None or not self._boundary.place.is_joined:
            root = os.environ.get(environment.CHECKPOINT_DIR, "")
            place = read_placement()
            self._boundary = Boundary(
                self._recording,
                place,
                self._savable,
                absolute(root) if root else None,
                os.environ.get(environment.JOB, ""),
                write_timeout_s=read_write_timeout_s(os.environ),
                rounds=read_rounds(os.environ, self._recording, place, self._savable),
                has_snapshots=has_snapshots(os.environ),
            )
        return self._boundary


class _Reported:
    """One kind of number that the script tells."""

    def __init__(self, tell: Tell, guard: Guard) -> None:
        self._tell = tell
        self._copies: PinnedCopies | None = None
        self._look = guard.wrap("that looks for reported numbers", self._report_copies, None)
        self._copy = guard.wrap("that copies a reported number", self._start_copy, None)

    def tell(self, number: Any, step: int) -> None:
        """Tell it, and what has arrived from the GPU since."""
        if self._copies is not None:
            self._look()
        if not isinstance(number, torch.Tensor):
            self._tell(float(number), step)
        elif not number.is_cuda:
            self._tell(number.item(), step)
        else:
            self._copy(number, step)

    def _report_copies(self) -> None:
        if self._copies is not None and not _is_capturing():
            self._copies.report(self._tell)

    def _start_copy(self, number: torch.Tensor, step: int) -> None:
        if not _is_capturing():  # else it would be a part of the graph
            self._copies = self._copies or PinnedCopies(torch)
            self._copies.start(number.detach(), step)


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured now."""
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())
