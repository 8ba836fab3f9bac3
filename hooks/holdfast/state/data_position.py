"""Where in the data the loop is, and going back there: every batch once, in the same order.

A loader that can say where it is (`state_dict`) is asked. Any other is started again as its pass
was started, generators included, and the batches already used are passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import DataLoader, IterableDataset

from holdfast.state.random_state import RandomState, capture_random_state, restore_random_state

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """A place in the data. `taken` counts the batches this pass has given so far."""

    epoch: int
    taken: int
    pass_start: RandomState | None = None
    now: RandomState | None = None
    loader_state: dict[str, Any] | None = None
    world_size: int = 1


def restore_random_numbers(position: Position) -> None:
    """Put the global generators back, where they are known."""
    if position.now is not None:
        restore_random_state(position.now)


class Feed(Protocol):
    """Batches in an order that can be taken up again."""

    epoch: int

    def take(self) -> Any:
        """The next batch; StopIteration at the end of the last pass."""

    def position(self, world_size: int) -> Position:
        """Where it is, before the next batch is asked for."""

    def go_back(self, position: Position, world_size: int) -> None:
        """Go on from there: the batches before it are used, the generators as they were."""

    def pass_over(self, count: int) -> None:
        """Take so many batches and use none of them; StopIteration as in `take`."""


class SequenceFeed:
    """A sequence is indexed by step, so the step is the position, but for what was passed over."""

    def __init__(self, items: Sequence[Any], step: int) -> None:
        self.epoch = 0
        self._items = items
        self._next = step
        self._passed_over = 0

    def take(self) -> Any:
        """The item of this step."""
        if self._next >= len(self._items):
            raise StopIteration
        item = self._items[self._next]
        self._next += 1
        return item

    def position(self, world_size: int) -> Position:
        """Beside the step: how many items were passed over so far, and the generators."""
        now = capture_random_state()
        return Position(0, self._passed_over, now=now, world_size=world_size)

    def go_back(self, position: Position, world_size: int) -> None:
        """It starts at the step already."""
        self.pass_over(position.taken)
        restore_random_numbers(position)

    def pass_over(self, count: int) -> None:
        """Leave out the next so many items: every later step gets a later one."""
        self._next += count
        self._passed_over += count


class LoaderFeed:
    """A loader (or any iterable that can be started again), pass after pass."""

    def __init__(self, loader: Any, epoch: int, last_epoch: int | None) -> None:
        self._loader = loader
        self._generators = _generators(loader)
        self._iterator: Iterator[Any] | None = None
        self._taken = 0
        self._pass_start: RandomState | None = None
        self._last_epoch = last_epoch
        self._ended_before = False
        self.epoch = epoch

    def take(self) -> Any:
        """The next batch, from the next pass when this one is used up."""
        while self._last_epoch is None or self.epoch < self._last_epoch:
            if self._iterator is None:
                self._start_pass()
            assert self._iterator is not None
            try:
                batch = next(self._iterator)
            except StopIteration:
                if self._taken == 0 and not self._ended_before:
                    raise  # an empty loader would be started for ever
                self.epoch += 0 if self._ended_before else 1
                self._iterator, self._taken, self._ended_before = None, 0, False
                continue
            self._ended_before = False
            self._taken += 1
            return batch
        raise StopIteration

    def position(self, world_size: int) -> Position:
        """Where it is, before the next batch is asked for."""
        # Between passes nobody is anywhere, and torchdata's loader would start a pass to tell.
        tells = self._iterator is not None and says_where_it_is(self._loader)
        return Position(
            epoch=self.epoch,
            taken=self._taken,
            pass_start=self._pass_start,
            now=capture_random_state(self._generators),
            loader_state=self._loader.state_dict() if tells else None,
            world_size=world_size,
        )

    def go_back(self, position: Position, world_size: int) -> None:
        """Take up the pass that `position` speaks of, behind the batches it had given."""
        taken = _batches_taken(position, world_size)
        if position.loader_state is not None and position.world_size == world_size:
            self._loader.load_state_dict(position.loader_state)
            self._go_on(taken, position.loader_state)
        elif taken > 0:
            if position.pass_start is not None:
                restore_random_state(position.pass_start, self._generators)
            self._start_pass()
            self._pass_over(taken)
            self._warn_of_kept_workers()
        if position.now is not None:
            restore_random_state(position.now, self._generators)

    def pass_over(self, count: int) -> None:
        """Take them as ever, and leave them: they count as taken in every later position."""
        for _ in range(count):
            self.take()

    def _go_on(self, taken: int, state: dict[str, Any]) -> None:
        length = _length(self._loader)
        if _has_read_all(state) or (length is not None and taken >= length):
            # Saved at the end of a pass: some loaders give an empty rest of it first, others
            # (torchdata's) begin the next pass at once.
            self.epoch += 1
            self._ended_before = True
        else:
            self._start_pass()
            self._taken = taken

    def _start_pass(self) -> None:
        # The data set too: streams are shuffled by it (datasets' IterableDataset).
        parts = (self._loader, getattr(self._loader, "dataset", None), *_samplers(self._loader))
        for part in parts:
            if callable(getattr(part, "set_epoch", None)):
                part.set_epoch(self.epoch)
        self._pass_start = capture_random_state(self._generators)
        self._iterator = iter(self._loader)
        self._taken = 0

    def _pass_over(self, count: int) -> None:
        assert self._iterator is not None
        # Workers draw random numbers of their own for every sample, so there the samples have to
        # be made again. In this process only the order matters: the generators are put back to
        # where they were afterwards.
        orders = _order_of_batches(self._loader, self._iterator)
        for self._taken in range(1, count + 1):
            if next(orders or self._iterator, _END) is _END:
                break

    def _warn_of_kept_workers(self) -> None:
        if self.epoch > 0 and getattr(self._loader, "persistent_workers", False):
            log.warning(
                "holdfast: persistent_workers keep their random numbers from pass to pass, which "
                "no resume can repeat; the order of the samples is exact, their augmentation is not"
            )


_END = object()


def says_where_it_is(loader: Any) -> bool:
    """Whether a loader can be asked for its state."""
    # Accelerate's loaders have the methods always, and use them when they were told to.
    is_able = getattr(loader, "use_stateful_dataloader", True)
    return is_able and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _length(loader: Any) -> int | None:
    """Batches of a pass; None where nobody knows: every DataLoader has `__len__`, and over a stream
    it raises."""
    try:
        return len(loader)
    except TypeError:
        return None


def _has_read_all(state: Any) -> bool:
    """Whether torchdata's loader had come to the end of its stream, in each of its workers.

    It notes that before it says so, and its data set may have gone back to its beginning by then.
    """
    return all(ended := list(_values_of("fetcher_ended", state))) and bool(ended)


def _values_of(key: str, state: Any) -> Iterator[Any]:
    if isinstance(state, dict):
        for name, value in state.items():
            if name == key:
                yield value
            else:
                yield from _values_of(key, value)


def _samplers(loader: Any) -> list[Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    sharded = getattr(batch_sampler, "batch_sampler", None)  # Accelerate's share of another one
    inner = [getattr(part, "sampler", None) for part in (batch_sampler, sharded)]
    return _unique((getattr(loader, "sampler", None), batch_sampler, sharded, *inner))


def _unique(parts: Iterable[Any]) -> list[Any]:
    seen: list[Any] = []
    for part in parts:
        if part is not None and all(part is not other for other in seen):
            seen.append(part)
    return seen


def _generators(loader: Any) -> dict[str, Any]:
    """Generators of its own that a loader and its samplers draw from, by a stable name."""
    parts = _unique((loader, *_samplers(loader)))
    drawn = (getattr(part, "generator", None) for part in parts)
    return {str(index): generator for index, generator in enumerate(drawn) if generator is not None}


def _order_of_batches(loader: Any, iterator: Iterator[Any]) -> Iterator[Any] | None:
    """The iterator of indices behind a single-process pass, where torch has one to offer."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    if loader.num_workers > 0:
        return None
    return getattr(iterator, "_sampler_iter", None)


def _batches_taken(position: Position, world_size: int) -> int:
    """Batches of a pass already used, counted for another number of ranks.

    DistributedSampler deals the samples out in turn, so k batches on each of n ranks are the same
    samples as k·n/m batches on each of m. Rounded down: rather a batch twice than one never.
    """
    return position.taken * position.world_size // world_size
