"""How tensors get into a slot: at once from the host, behind the next step from a GPU."""

import pytest
import torch

from holdfast.page import Order, OrderKind
from holdfast.registered import register
from holdfast.snapshots import copying
from holdfast.snapshots.captured import steady_places
from holdfast.snapshots.copying import GpuCopier, HostCopier
from holdfast.snapshots.layout import sources
from holdfast.snapshots.partner import Partner

pytestmark = pytest.mark.torch


def test_tensors_of_any_kind_and_shape_are_copied():
    tensors = [
        torch.randn(4, 3).t(),
        torch.arange(5),
        torch.randn(2, requires_grad=True),
        torch.randn(3).half(),
        torch.empty(0),
    ]
    targets = [torch.zeros(t.shape, dtype=t.dtype) for t in tensors]
    copy = HostCopier().start(targets, tensors, [False] * 5)
    assert copy.is_done()
    assert copy.wait()
    assert all(torch.equal(a, b) for a, b in zip(targets, tensors, strict=True))


class OnGpu:
    """A tensor that says it lies on a GPU."""

    def __init__(self, name, device="cuda:0"):
        self.name, self.device, self.dtype = name, device, torch.float32
        self.is_cuda = True
        self.used_on = []
        self._version = 0

    def record_stream(self, stream):
        self.used_on.append(stream)


class Event:
    def __init__(self):
        self.is_over = False

    def query(self):
        return self.is_over

    def synchronize(self):
        self.is_over = True


class Stream:
    def __init__(self, cuda, name):
        self.cuda, self.name = cuda, name

    def wait_stream(self, other):
        self.cuda.said.append((self.name, "waits for", other.name))

    def wait_event(self, event):
        self.cuda.said.append((self.name, "waits for event"))

    def record_event(self, event):
        self.cuda.events.append(event)
        return event

    def __enter__(self):
        self.cuda.current = self

    def __exit__(self, *_):
        self.cuda.current = self.cuda.main


class Runtime:
    def __init__(self, said, refuses):
        self.said, self.refuses = said, refuses

    def cudaHostRegister(self, address, size, flags):
        self.said.append(("pinned", address, size, flags))
        return self.refuses

    def cudaHostUnregister(self, address):
        self.said.append(("unpinned", address))


class Cuda:
    """What GpuCopier asks of torch.cuda."""

    Event = Event

    def __init__(self, refuses=0):
        self.said, self.events = [], []
        self.main = self.current = Stream(self, "main")
        self.captures = False
        self.runtime = Runtime(self.said, refuses)

    def current_device(self):
        return 0

    def current_stream(self, device=None):
        return self.current

    def is_current_stream_capturing(self):
        return self.captures

    def Stream(self, device):
        return Stream(self, f"side of {device}")

    def stream(self, stream):
        return stream

    def device(self, number):
        return self.main

    def cudart(self):
        return self.runtime


@pytest.fixture
def cuda(monkeypatch):
    made = Cuda()

    def copy_all(targets, tensors, non_blocking=False):
        if tensors:
            names = [tensor.name for tensor in tensors]
            made.said.append((made.current.name, "copies", *names, non_blocking))

    monkeypatch.setattr(copying, "copy_all", copy_all)
    return made


@pytest.fixture
def copier(cuda):
    return GpuCopier(cuda)


WEIGHT, BUFFER = OnGpu("weight"), OnGpu("buffer")


def start(copier, aside):
    return copier.start([object(), object()], [WEIGHT, BUFFER], [aside, False])


def test_what_only_optimizers_change_is_copied_aside_and_the_rest_before_the_next_step(
    cuda, copier
):
    copy = start(copier, aside=True)
    assert cuda.said == [
        ("main", "copies", "buffer", True),
        ("side of cuda:0", "waits for", "main"),
        ("side of cuda:0", "copies", "weight", True),
    ]
    assert [stream.name for stream in WEIGHT.used_on[-1:]] == ["side of cuda:0"]
    assert not copy.is_done()
    cuda.events[0].is_over = True
    assert not copy.is_done()
    cuda.events[1].is_over = True
    assert copy.is_done()
    assert copy.wait()


def test_the_optimizer_waits_for_the_copy_and_nobody_else_does(cuda, copier):
    copy = start(copier, aside=True)
    del cuda.said[:]
    copier.before_step(object(), (), {})
    assert cuda.said == [("main", "waits for event")] * 2
    copier.before_step(object(), (), {})
    assert len(cuda.said) == 2  # once is enough
    assert not copy.is_done()  # and nobody waited here
    assert copy.wait()


def test_without_overlap_the_copy_is_over_when_it_returns(cuda, copier):
    copy = start(copier, aside=False)
    assert cuda.said == [("main", "copies", "weight", "buffer", True)]
    assert copy.is_done()


def test_it_overlaps_only_while_the_optimizers_hook_is_heard(cuda, copier):
    assert not copier.overlaps
    copier.before_step()
    assert copier.overlaps
    start(copier, aside=True)
    assert not copier.overlaps  # a graph that is replayed tells nobody
    copier.before_step()
    assert copier.overlaps


def test_a_step_that_is_captured_in_a_graph_ends_overlapping_and_spoils_the_copy(cuda, copier):
    copier.before_step()
    copy = start(copier, aside=True)
    cuda.captures = True
    del cuda.said[:]
    copier.before_step()
    assert cuda.said == []  # a wait for what lies outside would break the graph
    assert not copy.wait()
    cuda.captures = False
    copier.before_step()
    assert not copier.overlaps


@pytest.mark.parametrize("steps", [True, False])
def test_weights_that_the_script_writes_into_before_the_step_spoil_the_copy(cuda, copier, steps):
    copy = start(copier, aside=True)
    WEIGHT._version += 1
    if steps:
        copier.before_step()
    assert not copy.wait()


def test_what_the_optimizer_does_then_spoils_nothing(cuda, copier):
    copy = start(copier, aside=True)
    copier.before_step()
    WEIGHT._version += 1
    assert copy.wait()


def test_writing_into_a_tensor_is_counted_in_what_snapshots_are_made_of():
    weight = torch.nn.Parameter(torch.zeros(3))
    (source,) = sources({"model/weight": weight}, [])
    before = source.tensor._version
    with torch.no_grad():
        weight.mul_(2)
    assert source.tensor._version > before


def test_memory_is_pinned_once_and_unpinned_before_it_goes(cuda, copier):
    copier.register(4096, 100)
    copier.unregister(4096)
    copier.unregister(4096)
    assert cuda.said == [("pinned", 4096, 100, 1), ("unpinned", 4096)]


def test_memory_that_can_not_be_pinned_is_copied_into_all_the_same():
    cuda = Cuda(refuses=1)
    copier = GpuCopier(cuda)
    copier.register(4096, 100)
    copier.unregister(4096)
    assert cuda.said == [("pinned", 4096, 100, 1)]


def test_only_what_torchs_optimizers_change_may_be_copied_aside():
    class Theirs(torch.optim.SGD):
        pass

    model, other = torch.nn.BatchNorm1d(3), torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    theirs = Theirs(other.parameters(), lr=0.1)
    places = steady_places(register({"model": model, "a": optimizer, "b": theirs}))
    assert model.weight.data_ptr() in places
    assert optimizer.state[model.weight]["exp_avg"].data_ptr() in places
    assert model.running_mean.data_ptr() not in places
    assert other.weight.data_ptr() not in places


class Page:
    """Confirmations as the sidecar writes them, one more at each look."""

    def __init__(self, *steps):
        self.orders = [
            None if step is None else Order(OrderKind.CONFIRMED, 0, 1, max(step, 0), step >= 0, "c")
            for step in steps
        ]

    def order(self, kind):
        assert kind is OrderKind.CONFIRMED
        return self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]


def partner(recording, timeout_s=1.0):
    now_s = [0.0]

    def pause(seconds):
        now_s[0] += 0.1

    made = Partner(recording, timeout_s, lambda: now_s[0], pause)
    made.waited_s = lambda: now_s[0]
    return made


def nobody_leaves_out():
    return False


def test_a_step_is_waited_for_until_another_node_has_it():
    waits = partner(Page(None, None, 3, 3, 4))
    assert waits.await_confirmed(4, nobody_leaves_out)
    assert 0 < waits.waited_s() < 1


def test_a_partner_that_is_silent_is_waited_for_once(caplog):
    page = Page(3)
    waits = partner(page)
    assert not waits.await_confirmed(4, nobody_leaves_out)
    assert waits.waited_s() >= 1
    before_s = waits.waited_s()
    assert not waits.await_confirmed(5, nobody_leaves_out)
    assert waits.waited_s() == before_s
    assert caplog.text.count("no other node") == 1
    page.orders = Page(4, 4, 4, 6).orders
    assert waits.await_confirmed(6, nobody_leaves_out)  # it is back


def test_a_step_that_another_rank_leaves_out_is_not_waited_for(caplog):
    answers = iter([False, True])
    waits = partner(Page(3), timeout_s=60.0)
    assert not waits.await_confirmed(4, lambda: next(answers))
    assert waits.waited_s() < 60
    assert not caplog.text, "the partner is not to blame"


def test_a_partner_that_was_taken_away_is_not_waited_for():
    waits = partner(Page(3, 3, 3, -1))
    assert not waits.await_confirmed(4, nobody_leaves_out)
    assert waits.waited_s() < 1
