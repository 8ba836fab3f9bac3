"""How tensors get into a slot: at once from the host, behind the next step from a GPU."""

from contextlib import contextmanager

import pytest
import torch
from tests.unit.three_lines.slots import make_slot
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from torch.optim.optimizer import _global_optimizer_pre_hooks as optimizer_hooks

from holdfast.contract.page import Order, OrderKind
from holdfast.guard import Guard
from holdfast.recording.placement import Placement
from holdfast.snapshots import copying
from holdfast.snapshots.captured import Captured, steady_places
from holdfast.snapshots.copying import GpuCopier, HostCopier
from holdfast.snapshots.filling import Filling
from holdfast.snapshots.layout import Source, sources
from holdfast.snapshots.replica_ack import Partner
from holdfast.snapshots.slot import Author, open_slot
from holdfast.state.registered import register

pytestmark = pytest.mark.torch

AUTHOR = Author("job", attempt=0, epoch=0, rank=0, world_size=1)


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


GPU = torch.device("cuda:0")


class OnGpu:
    """A tensor that says it lies on a GPU."""

    def __init__(self, name, device=GPU):
        self.name, self.device, self.dtype = name, device, torch.float32
        self.place = id(self)
        self.is_cuda = True
        self.used_on = []
        self._version = 0

    def data_ptr(self):
        return self.place

    def record_stream(self, stream):
        self.used_on.append(stream)


class Event:
    def __init__(self, enable_timing=False):
        self.is_over = False
        self.at_ms = 0.0 if enable_timing else None

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms

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

    def synchronize(self):
        self.cuda.said.append((self.name, "is waited for"))

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
        self.said: list[tuple[object, ...]] = []
        self.events = []
        self.main = self.current = Stream(self, "main")
        self.captures = False
        self.runtime = Runtime(self.said, refuses)
        self.current_device, self.with_contexts = torch.device("cuda:0"), set()

    def is_initialized(self):
        return True

    def current_stream(self, device=None):
        self.with_contexts.add(device or self.current_device)
        return self.current

    def is_current_stream_capturing(self):
        self.with_contexts.add(self.current_device)
        return self.captures

    def Stream(self, device):
        return Stream(self, f"side of {device}")

    def stream(self, stream):
        return stream

    @contextmanager
    def device(self, device):
        before, self.current_device = self.current_device, device
        try:
            yield
        finally:
            self.current_device = before

    def cudart(self):
        self.with_contexts.add(self.current_device)
        return self.runtime


class NoSamples:
    """Of tensors that hold nothing."""

    def __init__(self, tensors):
        pass

    def fetch(self, stream):
        pass

    def differing(self, targets):
        return []


@pytest.fixture
def cuda(monkeypatch):
    made = Cuda()

    def copy_all(targets, tensors, non_blocking=False):
        if tensors:
            names = [tensor.name for tensor in tensors]
            made.said.append((made.current.name, "copies", *names, non_blocking))

    monkeypatch.setattr(copying, "copy_all", copy_all)
    monkeypatch.setattr(copying, "Samples", NoSamples)
    return made


@pytest.fixture
def copier(cuda):
    return GpuCopier([GPU], cuda)


OPTIMIZER = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
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
    cuda.events[-1].is_over = True
    assert copy.is_done()
    assert copy.wait()


def test_the_optimizer_waits_for_the_copy_and_nobody_else_does(cuda, copier):
    copy = start(copier, aside=True)
    del cuda.said[:]
    copier.before_step(OPTIMIZER)
    assert cuda.said == [("main", "waits for event")] * 2
    copier.before_step(OPTIMIZER)
    assert len(cuda.said) == 2  # once is enough
    assert not copy.is_done()  # and nobody waited here
    assert copy.wait()


@pytest.mark.parametrize("fails", ["Stream", "record_stream", "synchronize"])
def test_what_was_begun_is_waited_for_before_an_error_gives_the_slot_back(
    cuda, copier, monkeypatch, fails
):
    """Else the device would write into a slot that is another copy's by then."""
    weight, moment = OnGpu("weight"), OnGpu("moment", torch.device("cuda:1"))
    copier.devices = (weight.device, moment.device)

    def fail(*_):
        raise RuntimeError("out of memory")

    if fails == "Stream":  # of the second device, when the first one copies already
        make = cuda.Stream
        monkeypatch.setattr(cuda, "Stream", lambda d: make(d) if d == GPU else fail())
    elif fails == "record_stream":
        monkeypatch.setattr(moment, "record_stream", fail)
    else:  # nothing is copied aside, and the wait for it fails
        monkeypatch.setattr(Event, "synchronize", fail)
    aside = fails != "synchronize"
    with pytest.raises(RuntimeError, match="out of memory"):
        copier.start([object(), object()], [weight, moment], [aside, aside])
    copies = [index for index, said in enumerate(cuda.said) if said[1] == "copies"]
    behind = [name for name, did, *_ in cuda.said[copies[-1] :] if did == "is waited for"]
    assert set(behind) >= {cuda.said[index][0] for index in copies} | {"main"}
    copier.before_step(OPTIMIZER)
    assert copier._under_way is None


def test_without_overlap_the_copy_is_over_when_it_returns(cuda, copier):
    copy = start(copier, aside=False)
    assert cuda.said == [("main", "copies", "weight", "buffer", True)]
    assert copy.is_done()


def test_it_overlaps_only_while_the_optimizers_hook_is_heard(cuda, copier):
    assert not copier.heard
    copier.before_step(OPTIMIZER)
    assert OPTIMIZER in copier.heard
    start(copier, aside=True)
    assert not copier.heard  # a graph that is replayed tells nobody
    copier.before_step(OPTIMIZER)
    assert OPTIMIZER in copier.heard


def test_a_step_that_is_captured_in_a_graph_ends_overlapping_and_spoils_the_copy(cuda, copier):
    copier.before_step(OPTIMIZER)
    copy = start(copier, aside=True)
    cuda.captures = True
    del cuda.said[:]
    copier.before_step(OPTIMIZER)
    assert cuda.said == []  # a wait for what lies outside would break the graph
    assert not copy.wait()
    cuda.captures = False
    copier.before_step(OPTIMIZER)
    assert not copier.heard


FAILING = ["is_current_stream_capturing", "current_stream", "Event"]


@pytest.mark.parametrize("failing", FAILING)
def test_an_error_before_a_step_stays_out_of_the_optimizer_and_spoils_the_copy(
    cuda, monkeypatch, failing
):
    errors = []
    copier = GpuCopier([GPU], cuda, guard=Guard(lambda: errors.append(1)))
    handle = copier.listen()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def fail(*_, **__):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    try:
        copy = start(copier, aside=True)
        with monkeypatch.context() as patched:
            patched.setattr(cuda, failing, fail)
            optimizer.step()
        assert weight.tolist() == [0.5, 0.5]
        assert errors == [1]
        assert not copy.wait(), "the optimizer wrote while it was read"
        optimizer.step()
        assert not copier.heard
    finally:
        handle.remove()


def test_what_a_signal_handler_raises_before_a_step_is_the_scripts_and_spoils_the_copy(
    cuda, copier, monkeypatch
):
    class Stop(BaseException):
        pass

    def stop(*_, **__):
        raise Stop

    copy = start(copier, aside=True)
    monkeypatch.setattr(cuda, "current_stream", stop)
    with pytest.raises(Stop):
        copier.before_step(OPTIMIZER)
    assert not copy.wait()


@pytest.mark.parametrize("steps", [True, False])
def test_weights_that_the_script_writes_into_before_the_step_spoil_the_copy(cuda, copier, steps):
    copy = start(copier, aside=True)
    WEIGHT._version += 1
    if steps:
        copier.before_step(OPTIMIZER)
    assert not copy.wait()


def test_weights_that_are_written_into_again_and_again_are_copied_in_line(cuda, copier, caplog):
    """As sharpness-aware training writes them at every step; moments are copied aside as ever."""
    weight, moment = OnGpu("weight"), OnGpu("moment")

    def copy(is_written):
        copier.before_step(OPTIMIZER)
        del cuda.said[:]
        begun = copier.start([object(), object()], [weight, moment], [True, True])
        weight._version += is_written
        copier.before_step(OPTIMIZER)
        weight._version += 1
        return begun.wait()

    for _ in range(3):
        assert not copy(is_written=True)
        assert copy(is_written=False), "weights may be loaded, or exchanged for an evaluation"
    assert not copier._spoils
    assert not caplog.text
    assert not copy(is_written=True)
    assert not copy(is_written=True)
    assert caplog.text.count("1 tensors are written before their optimizer steps") == 1
    assert copy(is_written=True)
    assert ("main", "copies", "weight", True) in cuda.said
    assert ("side of cuda:0", "copies", "moment", True) in cuda.said
    assert copy(is_written=False)
    assert ("main", "copies", "weight", True) in cuda.said, "it stays so"


def spoil(copier, tensor):
    copier.before_step(OPTIMIZER)
    begun = copier.start([object()], [tensor], [True])
    tensor._version += 1
    return begun.wait()


def test_weights_that_get_other_memory_at_each_write_are_copied_in_line_as_well(copier):
    """As SAM's second step gives them their old ones back: `p.data = old`."""
    assert [spoil(copier, OnGpu("weight")) for _ in range(3)] == [False, False, True]


def test_what_spoilt_copies_is_forgotten_when_the_tensors_are_laid_out_anew(cuda, copier):
    weight, another = OnGpu("weight"), OnGpu("another")
    another.place = weight.place
    assert [spoil(copier, weight) for _ in range(3)] == [False, False, True]
    copier.lay_out([GPU])
    del cuda.said[:]
    assert not spoil(copier, another)
    assert ("side of cuda:0", "copies", "another", True) in cuda.said


class Held(torch.Tensor):
    """A tensor with numbers that says it lies on a GPU."""

    is_cuda = True

    def record_stream(self, stream):
        pass


class Transfers:
    """Copies of the side stream, which are made when a test says so."""

    def __init__(self, cuda):
        self.cuda, self.waiting = cuda, []

    def copy_all(self, targets, tensors, non_blocking=False):
        if self.cuda.current is self.cuda.main:
            copy_all(targets, tensors)
        else:
            self.waiting += zip(targets, tensors, strict=True)

    def make(self, count):
        """The next so many."""
        made, self.waiting = self.waiting[:count], self.waiting[count:]
        for target, tensor in made:
            target.copy_(tensor)


copy_all = copying.copy_all


@pytest.fixture
def transfers(monkeypatch):
    made = Transfers(Cuda())
    monkeypatch.setattr(copying, "copy_all", made.copy_all)
    return made


def random_tensors():
    """Of several kinds, sizes and orders in memory."""
    return [
        torch.randn(40, 30),
        torch.randn(3),
        torch.empty(0),
        torch.tensor(2.0),
        torch.randn(500).to(torch.bfloat16),
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.randn(20, 10).t(),
        torch.arange(700),
        torch.randn(900)[100:],
        torch.full((300,), float("nan")),
        torch.randn(400) > 0,
    ]


def begin_aside(copier, tensors):
    copier.before_step(OPTIMIZER)
    held = [tensor.as_subclass(Held) for tensor in tensors]
    targets = [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
    return copier.start(targets, held, [True] * len(held)), targets


def test_tensors_of_any_kind_that_nobody_writes_are_copied_aside_whole(transfers):
    tensors = random_tensors()
    copy, targets = begin_aside(GpuCopier([GPU], transfers.cuda), tensors)
    transfers.make(len(tensors))
    assert copy.wait()
    for target, tensor in zip(targets, tensors, strict=True):
        assert torch.equal(target.nan_to_num(), tensor.contiguous().nan_to_num())


SIZED = [index for index, tensor in enumerate(random_tensors()) if tensor.numel()]


@pytest.mark.parametrize("index", SIZED)
def test_a_write_through_data_that_nobody_counts_spoils_the_copy(transfers, index):
    """As averaged weights are exchanged for an evaluation, and back before the optimizer steps."""
    tensors = random_tensors()
    weight = torch.nn.Parameter(tensors[index], requires_grad=False)
    tensors[index] = weight.detach()
    own, version = weight.detach().clone(), tensors[index]._version
    copy, _ = begin_aside(GpuCopier([GPU], transfers.cuda), tensors)
    transfers.make(index)
    weight.data.copy_(own == 0 if own.dtype == torch.bool else torch.ones_like(own) * 7)
    transfers.make(1)
    weight.data.copy_(own)
    transfers.make(len(tensors))
    assert tensors[index]._version == version, "nobody counted"
    assert not copy.wait()


def test_a_write_through_data_behind_the_copy_spoils_nothing(transfers):
    weight = torch.nn.Parameter(torch.randn(40))
    copier = GpuCopier([GPU], transfers.cuda)
    copy, targets = begin_aside(copier, [weight.detach()])
    transfers.make(1)
    own = weight.detach().clone()
    weight.data.zero_()
    copier.before_step(OPTIMIZER)
    assert copy.wait()
    assert torch.equal(targets[0], own)


def test_weights_exchanged_through_data_at_every_copy_are_copied_in_line_from_the_third_on(
    transfers,
):
    weight = torch.nn.Parameter(torch.randn(40))
    copier = GpuCopier([GPU], transfers.cuda)
    sealed = []
    for _ in range(3):
        copy, _ = begin_aside(copier, [weight.detach()])
        weight.data.mul_(2)
        transfers.make(1)
        sealed.append(copy.wait())
    assert sealed == [False, False, True]


def test_each_stream_that_steps_an_optimizer_waits_for_the_copy_once(cuda, copier):
    start(copier, aside=True)
    other = Stream(cuda, "other")
    del cuda.said[:]
    copier.before_step(OPTIMIZER)
    with other:
        copier.before_step(OPTIMIZER)
        copier.before_step(OPTIMIZER)
    waits = [said for said in cuda.said if said[1] == "waits for event"]
    assert waits == [("main", "waits for event")] * 2 + [("other", "waits for event")] * 2


def test_what_the_copy_kept_the_device_is_told_by_the_devices_clock(cuda, copier):
    copy = start(copier, aside=True)
    copier.before_step(OPTIMIZER)
    _, begin, end, before, after = cuda.events
    begin.at_ms, end.at_ms, before.at_ms, after.at_ms = 1.0, 9.0, 6.0, 9.0
    assert copy.wait()
    assert copy.kept_ns() == 8_000_000, "until it is known: no longer than the copy took"
    after.is_over = True
    assert copy.kept_ns() == 3_000_000


def test_a_copy_that_no_optimizer_waited_for_kept_nobody(cuda, copier):
    copy = start(copier, aside=True)
    assert copy.wait()
    assert copy.kept_ns() == 0


def test_nothing_is_asked_of_a_device_on_which_no_tensor_lies(cuda):
    """A script that never calls set_device: a context there is memory of every rank on one GPU."""
    third, fifth = torch.device("cuda:3"), torch.device("cuda:5")
    copier = GpuCopier([third, fifth], cuda)
    copier.register(4096, 100, lambda: True)
    copier.await_devices()
    assert cuda.said[-2:] == [("main", "is waited for")] * 2
    copier.before_step(OPTIMIZER)
    weights = [OnGpu("weight", third), OnGpu("moment", fifth)]
    copy = copier.start([object(), object()], weights, [True, True])
    copier.before_step(OPTIMIZER)
    assert copy.wait()
    copier.unregister(4096)
    assert cuda.with_contexts == {third, fifth}


def test_the_devices_are_those_of_the_tensors_also_after_they_were_laid_out_anew():
    def lie_on(device):
        kind = type("There", (Held,), {"device": torch.device(device)})
        sources = [torch.ones(2), torch.ones(4).as_subclass(kind)]
        return Captured([Source(f"own/{n}", one) for n, one in enumerate(sources)], b"{}")

    filling = Filling(AUTHOR, Placement(), register({}), Guard(lambda: None))
    before = list(optimizer_hooks)
    try:
        for device in ("cuda:3", "cuda:5"):
            filling.plan(lie_on(device))
            assert isinstance(filling._copier, GpuCopier)
            assert filling._copier.devices == (torch.device(device),)
    finally:
        filling.leave()
    assert list(optimizer_hooks) == before


class Pinned(torch.Tensor):
    """Weights in pinned memory, to which a GPU copies without waiting."""

    def is_pinned(self):
        return True


@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.parametrize("make", [HostCopier, lambda cuda: GpuCopier([GPU], cuda)])
def test_devices_are_waited_for_before_pinned_memory_is_copied(
    cuda, tmp_path, monkeypatch, is_pinned, make
):
    monkeypatch.setattr(copying, "copy_all", lambda *_: cuda.said.append(("main", "copies")))
    ema = torch.ones(4).as_subclass(Pinned) if is_pinned else torch.ones(4)
    captured = Captured([Source("own/0", ema)], b"{}")
    slot = open_slot(make_slot(tmp_path / "snapshots", 0, 0))
    assert slot is not None
    filling = Filling(AUTHOR, Placement(), register({}), Guard(lambda: None), _copier=make(cuda))
    filling.plan(captured)
    writing = slot.begin()
    assert writing is not None
    try:
        assert filling.fill(3, captured, slot, writing, may_overlap=True).wait()
    finally:
        writing.let_go()
        filling.leave()
    waits = [("main", "is waited for")] if is_pinned else []
    assert [*waits, ("main", "copies")] == cuda.said


class PlainOptimizer(torch.optim.Optimizer):
    """As users write them."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(parameter.grad, alpha=-0.1)


def compiled_frames(make, **options):
    """Frames that torch.compile takes to compile three steps of an optimizer."""
    torch._dynamo.reset()
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    made = make(model.parameters())
    counted = CompileCounter()
    step = torch.compile(made.step, backend=counted, **options)
    counters.clear()
    for _ in range(3):
        step()
    return counted.frame_count, counters["frames"]["total"]


@pytest.fixture
def listening(cuda, copier):
    handle = copier.listen()
    copier.before_step(OPTIMIZER)
    start(copier, aside=True)
    yield copier
    handle.remove()


def test_a_users_optimizer_that_is_compiled_whole_works_while_a_copy_is_under_way(listening):
    assert compiled_frames(PlainOptimizer, fullgraph=True)[0] > 0


def test_a_compiled_optimizer_takes_no_more_frames_for_us(cuda, copier):
    plain = compiled_frames(torch.optim.AdamW)
    copier.before_step(OPTIMIZER)
    handle = copier.listen()
    start(copier, aside=True)
    try:
        assert compiled_frames(torch.optim.AdamW) == plain
    finally:
        handle.remove()


def test_what_a_compiled_optimizer_wrote_unheard_spoils_the_copy(cuda, copier):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    before = weight.detach()._version
    torch.compile(PlainOptimizer([weight]).step, backend="aot_eager", fullgraph=True)()
    assert weight.detach()._version > before


def test_what_the_optimizer_does_then_spoils_nothing(cuda, copier):
    copy = start(copier, aside=True)
    copier.before_step(OPTIMIZER)
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
    copier.register(4096, 100, lambda: True)
    copier.unregister(4096)
    copier.unregister(4096)
    assert cuda.said == [("pinned", 4096, 100, 1), ("unpinned", 4096)]


def test_memory_that_can_not_be_pinned_is_copied_into_all_the_same():
    cuda = Cuda(refuses=1)
    copier = GpuCopier([GPU], cuda)
    copier.register(4096, 100, lambda: True)
    copier.unregister(4096)
    assert cuda.said == [("pinned", 4096, 100, 1)]


def test_memory_that_is_dropped_while_it_is_pinned_is_unpinned_by_who_pinned_it(cuda, copier):
    is_wanted = [True]

    def dropped_meanwhile(address, size, flags):
        is_wanted[:] = [False]
        copier.unregister(address)
        assert cuda.said == [], "it waits for nobody"
        cuda.said.append(("pinned", address))
        return 0

    cuda.runtime.cudaHostRegister = dropped_meanwhile
    copier.register(4096, 100, lambda: is_wanted[0])
    assert cuda.said == [("pinned", 4096), ("unpinned", 4096)]
    copier.unregister(4096)
    assert len(cuda.said) == 2


def test_memory_that_was_dropped_before_its_turn_is_never_pinned(cuda, copier):
    copier.unregister(4096)
    copier.register(4096, 100, lambda: False)
    assert cuda.said == []


def test_only_what_torchs_optimizers_change_may_be_copied_aside():
    class Theirs(torch.optim.SGD):
        pass

    model, other = torch.nn.BatchNorm1d(3), torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    theirs = Theirs(other.parameters(), lr=0.1)
    registered = register({"model": model, "a": optimizer, "b": theirs})
    places = steady_places(registered, [optimizer, theirs])
    assert model.weight.data_ptr() in places
    assert optimizer.state[model.weight]["exp_avg"].data_ptr() in places
    assert model.running_mean.data_ptr() not in places
    assert other.weight.data_ptr() not in places


def test_only_what_an_optimizer_changes_that_was_heard_may_be_copied_aside(cuda, copier):
    """The one of a GAN is replayed in a graph, silent; the other one steps beside it."""
    heard, silent = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    stepping = torch.optim.SGD(heard.parameters())
    registered = register({"a": stepping, "b": torch.optim.SGD(silent.parameters())})
    handle = copier.listen()
    try:
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()
        assert not steady_places(registered, copier.heard), "the script's own, of something else"
        stepping.step()
    finally:
        handle.remove()
    begins = {parameter.data_ptr() for parameter in heard.parameters()}
    assert steady_places(registered, copier.heard) == begins
    start(copier, aside=True)
    assert not steady_places(registered, copier.heard), "it may be in a graph from now on"


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
    made.waited_s = lambda: now_s[0]  # type: ignore[attr-defined]
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
