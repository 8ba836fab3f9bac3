"""A rank's own state comes back from JSON and tensors as it was, or is refused where it is odd."""

import enum
import io
import json
import random
import types
from collections import Counter, OrderedDict, defaultdict

import numpy
import pytest
import torch

from holdfast.state.data_position import Position
from holdfast.state.own_file import read_own, write_own
from holdfast.state.own_state import NotPlain, decode, encode, parse_device, spell_device
from holdfast.state.random_state import RandomState, capture_random_state, restore_random_state

pytestmark = pytest.mark.torch


def through_json(value):
    plain, tensors = encode(value)
    return decode(json.loads(json.dumps(plain, allow_nan=False)), tensors)


def same(one, other):
    """Equal and of the same types, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key, twin in zip(one, other, strict=True):
            same(key, twin)
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            same(*pair)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one.detach().to(torch.complex64), other.detach().to(torch.complex64))
    elif isinstance(one, int):
        assert one == other
    elif isinstance(one, numpy.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, (Position, RandomState)):
        same(vars(one), vars(other))
    else:
        assert repr(one) == repr(other)  # NaN, and the sign of zero


VALUES = {
    "nothing": None,
    "truth": [True, False],
    "integers": [0, -1, 2**63 - 1, 2**63, -(2**64), 7**2000, -(7**20000)],
    "floats": [0.1, -0.0, 1e308, 5e-324],
    "not finite": [float("nan"), float("inf"), float("-inf"), 1.5],
    "complex": [1 + 2j, complex("nan"), complex(0, float("-inf"))],
    "text": ["", "é", "\ud800", "\0", "!"],
    "bytes": [b"", bytes(range(256)), bytearray(b"x")],
    "nested": [[], [[]], (), ((1, (2,)), [3]), {"a": {"b": [{}]}}],
    "sets": [set(), {1}, frozenset({"a"}), {(1, 2)}],
    "odd keys": {1: "int", "1": "text", None: "none", (1, 2): "pair", 2.5: b"x", False: 0},
    "reserved keys": {"!": "dict", "v": [{"!": "tensor", "v": 0}]},
    "order": {"z": 1, "a": 2, "m": 3},
    "ordered": OrderedDict([("b", 1), ("a", OrderedDict())]),
    "counter": Counter("abca"),
    "default": defaultdict(list, {3: [1]}),
    "default of none": defaultdict(None, {3: [1]}),
    "torch's": [torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.Size([]), torch.int8],
    "devices": [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")],
    "tensors": [torch.ones(2, 3), torch.tensor(True), torch.zeros(0), torch.tensor(1j)],
    "half tensors": [torch.ones(2, dtype=torch.bfloat16), torch.ones(2).to(torch.float8_e4m3fn)],
    "scalars": [numpy.float32(0.1), numpy.int64(-3), numpy.bool_(True), numpy.float64("nan")],
    "texts of numpy": [numpy.str_("é"), numpy.bytes_(b"x")],
    "dates": [numpy.datetime64("2026-11-20"), numpy.timedelta64(3, "ms")],
    "arrays": [
        numpy.arange(6, dtype=">i2").reshape(2, 3),
        numpy.asfortranarray(numpy.eye(3))[:, ::2],
        numpy.zeros((0, 4)),
        numpy.array(7.0),
        numpy.array(["ab", "c"]),
        numpy.array([1 + 2j]),
        numpy.array(["2026-11-20"], dtype="M8[D]"),
    ],
    "random numbers": capture_random_state({"0": torch.Generator()}),
    "position": Position(1, 2, now=capture_random_state(), loader_state={"a": (1,)}, world_size=3),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_it_comes_back_as_it_was(value):
    same(through_json({"others": {"thing": value}}), {"others": {"thing": value}})


def test_generators_go_on_as_if_nothing_had_happened():
    state = through_json(capture_random_state())
    expected = (random.random(), torch.rand(3), numpy.random.rand(3))
    restore_random_state(state)
    assert random.random() == expected[0]
    assert torch.equal(torch.rand(3), expected[1])
    assert (numpy.random.rand(3) == expected[2]).all()


def test_a_scheduler_that_needs_its_counter_gets_one():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 1, 2])
    schedule.load_state_dict(through_json(schedule.state_dict()))
    assert sorted(schedule.milestones.elements()) == [1, 1, 2]


def test_tensors_are_the_live_ones_and_each_is_listed_once():
    weight = torch.nn.Parameter(torch.ones(2))
    plain, tensors = encode({"a": weight, "b": [weight, weight.detach()]})
    assert [tensor is weight for tensor in tensors] == [True, False]
    assert decode(plain, tensors)["b"][0] is weight


def test_tensors_come_back_on_devices_of_the_kind_that_they_were_on(monkeypatch):
    # A device without numbers stands for a GPU: what is read from a file is moved to it.
    shadow, rate, running = torch.ones(2), torch.tensor(0.1), torch.zeros(3)
    own = {
        "models": {"net": {"running_mean": running}},
        "optimizers": {"adam": {"groups": [{"lr": rate}]}},
        "others": {"ema": {"shadow": shadow, "again": [shadow]}},
    }
    with monkeypatch.context() as pretend:
        pretend.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
        elsewhere = property(lambda self: torch.device("meta"))
        pretend.setattr(torch.Tensor, "device", elsewhere, raising=False)
        plain, tensors = encode(own)
    stream = io.BytesIO()
    write_own(stream, plain, tensors)
    stream.seek(0)
    back = read_own(stream)
    assert back["others"]["ema"]["shadow"].device.type == "meta"
    assert back["others"]["ema"]["again"][0] is back["others"]["ema"]["shadow"]
    assert back["optimizers"]["adam"]["groups"][0]["lr"].device.type == "meta"
    assert back["models"]["net"]["running_mean"].is_cpu  # a model's loading moves it by itself


@pytest.mark.parametrize(
    ("device", "saved_by", "loaded_by", "back"),
    [
        (torch.device("cuda", 3), 3, 5, torch.device("cuda", 5)),
        (torch.device("cuda", 1), 0, 2, torch.device("cuda", 3)),
        (torch.device("cuda"), 2, 1, torch.device("cuda", 1)),
        (torch.device("meta"), 0, 0, torch.device("meta")),
    ],
)
def test_a_device_is_counted_from_the_current_one(device, saved_by, loaded_by, back):
    assert parse_device(spell_device(device, saved_by), loaded_by, count=8) == back


@pytest.mark.parametrize("offset", [-2, 1, 3])
def test_a_device_that_is_not_here_is_the_current_one(offset):
    assert parse_device(["cuda", offset], 1, count=2) == torch.device("cuda", 1)


def test_a_tensor_of_another_gpu_comes_back_where_one_alone_is_visible(monkeypatch):
    """As it was saved where a rank saw eight, and is resumed in a container that sees its own."""
    asked = []

    def move(tensor, device):
        asked.append(device)
        if device != torch.device("cuda", 0):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return tensor

    for name, answer in (("is_available", True), ("current_device", 0), ("device_count", 1)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.Tensor, "to", move)
    tensor = torch.ones(2)
    assert decode({"!": "tensor", "v": 0, "on": ["cuda", 3]}, [tensor]) is tensor
    assert asked == [torch.device("cuda", 0)]


def test_what_was_on_a_gpu_stays_where_it_is_read_when_there_is_none():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    tensor = decode({"!": "tensor", "v": 0, "on": ["cuda", 0]}, [torch.ones(1)])
    assert tensor.is_cpu


def test_an_array_that_comes_back_is_no_view_of_what_it_was_read_from():
    plain, tensors = encode(numpy.zeros(3))
    array = decode(plain, tensors)
    tensors[0].fill_(255)
    assert (array == 0).all()


def test_a_read_only_array_is_taken_without_a_warning(recwarn):
    array = numpy.zeros(3)
    array.flags.writeable = False
    same(through_json(array), numpy.zeros(3))
    assert not recwarn.list


class Colour(enum.IntEnum):
    RED = 1


class Own(dict[str, object]):
    pass


def loop():
    endless: list[object] = []
    endless.append(endless)
    return endless


ODD = {
    "a function": (lambda: 0, "is the function <lambda>"),
    "a method": ("".join, "is the function str.join"),
    "a class": (int, "is the class int"),
    "an object": (types.SimpleNamespace(), "is a SimpleNamespace"),
    "an enum": (Colour.RED, "is a Colour"),
    "a dict of its own": (Own(), "is an Own"),
    "a default of its own": (defaultdict(lambda: 0), "is a defaultdict with a function"),
    "a generator": (torch.Generator(), "is a Generator"),
    "an array of objects": (numpy.array([object()]), "is a NumPy array of object"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "is a sparse"),
    "a tensor without data": (
        torch.empty(2, device="meta"),
        "is a sparse, quantized, nested or meta",
    ),
    "a loop": (loop(), "contains itself"),
}


@pytest.mark.parametrize(("value", "reason"), ODD.values(), ids=ODD)
def test_what_only_a_pickle_could_hold_is_refused(value, reason):
    with pytest.raises(NotPlain, match=reason):
        encode({"others": {"thing": [1, value]}})


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ({"others": {"scheduler": {"lr_lambdas": [None, print]}}}, "scheduler['lr_lambdas'][1] is"),
        ({"others": {"thing": print}}, "thing is"),
        ({"models": {"model": {"_extra_state": print}}}, "model['_extra_state'] is"),
        (
            {"optimizers": {"opt": {"groups": [{"f": print}]}}},
            "opt['param_groups'][0]['f'] is",
        ),
        (
            {"optimizers": {"opt": {"own_values": {"model.0": {"f": print}}}}},
            "opt['state']['model.0']['f'] is",
        ),
        (
            {"position": Position(0, 0, loader_state={(1, 2): {print}})},  # type: ignore[dict-item]
            "loader[(1, 2)][0] is",
        ),
    ],
)
def test_the_place_is_told_in_the_users_words(own, place):
    with pytest.raises(NotPlain) as caught:
        encode(own)
    assert str(caught.value).startswith(place)
    assert "save= and load=" in str(caught.value)


@pytest.mark.parametrize(
    "plain",
    [
        {"!": "function", "v": "os.system"},
        {"!": "dtype", "v": "load"},
        {"!": "tensor", "v": 3},
        {"!": "Position", "v": {"epoch": 1}},
        {"!": "RandomState", "v": 3},
        {"!": "tuple"},
        {"!": ["list"], "v": 1},
        {"!": "defaultdict", "f": "eval", "v": []},
        {"!": "scalar", "d": "|O", "v": "AAAAAAAAAAA="},
        {"!": "array", "d": "|O", "s": [1], "v": 0},
        {"!": "set", "v": [[1]]},
        {"!": "bytes", "v": "?"},
        {"!": "tensor", "v": 0, "on": ["nn", 0]},
        {"!": "tensor", "v": 0, "on": ["cpu"]},
        {"!": "tensor", "v": 0, "on": ["meta", "x"]},
        {"!": "tensor", "v": 0, "on": 3},
    ],
    ids=json.dumps,
)
def test_what_was_never_encoded_is_an_ordinary_error(plain):
    with pytest.raises(ValueError, match=r"."):
        decode(plain, [torch.zeros(8, dtype=torch.uint8)])
