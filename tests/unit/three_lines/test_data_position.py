"""Every batch once, in the same order, wherever the pass was cut."""

import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from holdfast.state.data_position import LoaderFeed, Position, SequenceFeed

pytestmark = pytest.mark.torch

SAMPLES, BATCH = 22, 4


class Augmented(Dataset):
    def __init__(self):
        self.read = 0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.read += 1
        return index + 0.001 * float(torch.rand(1)) + 0.001 * random.random()


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(SAMPLES):
            yield index + 0.001 * float(torch.rand(1))


class Stateful:
    """A loader that can say where it is; `ends_with_nothing` as some go on after their end."""

    def __init__(self, ends_with_nothing):
        self.at = 0
        self.ends_with_nothing = ends_with_nothing

    def __len__(self):
        return 5

    def __iter__(self):
        if self.at == 5 and not self.ends_with_nothing:
            self.at = 0
        while self.at < 5:
            self.at += 1
            yield torch.tensor([float(self.at)])
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class StatefulStream(Stateful):
    """As torchdata's over a stream: like every DataLoader it has a length, which raises."""

    def __len__(self):
        raise TypeError("object of type 'Stream' has no len()")


class StreamThatGoesBack(StatefulStream):
    """Once it has read all, it is at its beginning again; the loader's state tells that it has."""

    def __init__(self):
        super().__init__(ends_with_nothing=False)

    def state_dict(self):
        return {"at": self.at % 5, "workers": [], "fetcher": {"fetcher_ended": self.at == 5}}


LOADERS = {
    "shuffled": lambda: DataLoader(Augmented(), BATCH, shuffle=True),
    "in order": lambda: DataLoader(Augmented(), BATCH),
    "one by one": lambda: DataLoader(Augmented(), batch_size=None, shuffle=True),
    "own generator": lambda: DataLoader(
        Augmented(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
    "with replacement": lambda: DataLoader(
        Augmented(),
        BATCH,
        sampler=RandomSampler(
            Augmented(), replacement=True, generator=torch.Generator().manual_seed(5)
        ),
    ),
    "stream": lambda: DataLoader(Stream(), BATCH),
    "list of batches": lambda: [torch.tensor([float(n)]) for n in range(6)],
    "stateful": lambda: Stateful(ends_with_nothing=False),
    "stateful, empty rest": lambda: Stateful(ends_with_nothing=True),
    "stateful stream": lambda: StatefulStream(ends_with_nothing=True),
    "stateful stream, back at its beginning": StreamThatGoesBack,
}


def seed():
    torch.manual_seed(3)
    random.seed(3)


def used(batch):
    """What the training would see of a batch, and its own use of random numbers."""
    return [round(float(x), 9) for x in torch.as_tensor(batch).reshape(-1)] + [
        float(torch.rand(1)),
        random.random(),
    ]


def take_all(feed):
    batches = []
    while True:
        try:
            batches.append(used(feed.take()))
        except StopIteration:
            return batches


@pytest.mark.parametrize("cut", [1, 3, 5, 6, 7, 11, 13])
@pytest.mark.parametrize("kind", LOADERS)
def test_a_cut_pass_goes_on_as_if_it_had_not_been_cut(kind, cut):
    seed()
    whole = take_all(LoaderFeed(LOADERS[kind](), 0, 3))
    seed()
    first = LoaderFeed(LOADERS[kind](), 0, 3)
    begun = [used(first.take()) for _ in range(cut)]
    position = first.position(1)
    torch.manual_seed(99)
    random.seed(99)
    second = LoaderFeed(LOADERS[kind](), position.epoch, 3)
    second.go_back(position, 1)
    assert begun + take_all(second) == whole


def test_a_loader_is_not_asked_where_it_is_before_its_first_pass():
    class Eager(Stateful):  # as torchdata's: it starts a pass, and draws random numbers, to answer
        def state_dict(self):
            torch.rand(1)
            return super().state_dict()

    seed()
    before = torch.get_rng_state()
    position = LoaderFeed(Eager(ends_with_nothing=True), 0, 1).position(1)
    assert position.loader_state is None
    assert torch.equal(torch.get_rng_state(), before)
    assert position.now is not None
    assert torch.equal(position.now.torch_cpu, before)


def test_samples_that_were_used_are_passed_over_without_being_read():
    feed = LoaderFeed(loader := DataLoader(Augmented(), BATCH, shuffle=True), 0, 1)
    for _ in range(4):
        feed.take()
    position = feed.position(1)
    loader.dataset.read = 0
    again = LoaderFeed(loader, 0, 1)
    again.go_back(position, 1)
    assert loader.dataset.read == 0
    take_all(again)
    assert loader.dataset.read == SAMPLES - 4 * BATCH


def test_the_sampler_hears_of_every_pass():
    heard = []

    class Sampler(RandomSampler):
        def set_epoch(self, epoch):
            heard.append(epoch)

    data = Augmented()
    take_all(LoaderFeed(DataLoader(data, BATCH, sampler=Sampler(data)), 2, 5))
    assert heard == [2, 3, 4]


def test_the_data_set_hears_of_every_pass():
    class Shuffled(Stream):
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(range(self.epoch, self.epoch + 3))

    feed = LoaderFeed(DataLoader(Shuffled(), batch_size=None), 2, 4)
    assert [values[0] for values in take_all(feed)] == [2, 3, 4, 3, 4, 5]


def test_an_empty_loader_ends_instead_of_starting_for_ever():
    with pytest.raises(StopIteration):
        LoaderFeed([], 0, None).take()


@pytest.mark.parametrize(("before", "now", "taken"), [(4, 2, 6), (2, 4, 1), (1, 1, 3), (3, 2, 4)])
def test_another_number_of_ranks_passes_over_the_same_samples(before, now, taken):
    feed = LoaderFeed(list(range(20)), 0, 1)
    feed.go_back(Position(0, 3, world_size=before), now)
    assert feed.take() == taken


def test_a_sequence_goes_on_at_its_step():
    feed = SequenceFeed(range(5), 3)
    assert [feed.take(), feed.take()] == [3, 4]
    with pytest.raises(StopIteration):
        feed.take()


@pytest.mark.parametrize("cut", [5, 9])
@pytest.mark.parametrize("kind", [*LOADERS, "sequence"])
def test_batches_that_were_passed_over_stay_so_after_a_resume(kind, cut):
    def feed(step=0, epoch=0):
        if kind == "sequence":
            return SequenceFeed([torch.tensor([float(n)]) for n in range(18)], step)
        return LoaderFeed(LOADERS[kind](), epoch, 3)

    seed()
    whole = take_all(feed())
    seed()
    first = feed()
    begun = [used(first.take()) for _ in range(3)]
    first.pass_over(2)
    begun += [used(first.take()) for _ in range(cut - 3)]
    position = first.position(1)
    torch.manual_seed(99)
    random.seed(99)
    second = feed(step=cut, epoch=position.epoch)
    second.go_back(position, 1)
    batches = [values[:-2] for values in begun + take_all(second)]
    expected = [values[:-2] for values in whole]
    if kind in ("sequence", "in order", "list of batches") or kind.startswith("stateful"):
        samples = [[int(x) for x in values] for values in batches]
        assert samples == [[int(x) for x in v] for v in expected[:3] + expected[5:]]
    assert len(batches) == len(whole) - 2


def test_what_is_passed_over_at_the_end_ends_the_data():
    with pytest.raises(StopIteration):
        LoaderFeed([1, 2, 3], 0, 1).pass_over(4)
    feed = SequenceFeed(range(3), 0)
    feed.pass_over(4)
    with pytest.raises(StopIteration):
        feed.take()
