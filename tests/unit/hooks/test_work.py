"""How much work a batch is, by its looks."""

from __future__ import annotations

import warnings
from collections import UserDict, defaultdict, namedtuple
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.patches.work import BatchWork, work_of
from holdfast.recording.recorder import Recorder

torch = pytest.importorskip("torch")

IDS = torch.zeros(4, 10, dtype=torch.int64)
IMAGES = torch.zeros(4, 3, 2, 2)
LABELS = torch.zeros(4, dtype=torch.int64)
OF_IDS, OF_IMAGES, NONE = (40, 400.0), (48, 576.0), (0, 0.0)

Pair = namedtuple("Pair", "inputs targets")


def works(*batches: Any) -> list[tuple[int, float]]:
    memory = bytearray(page.PAGE_SIZE)
    recorder = Recorder(memory, attempt=0)
    work = BatchWork(torch, recorder)
    for step, batch in enumerate(batches, 1):
        work.look(batch)
        recorder.end_step(step)
    records = [record for _, record in page.parse_records(bytes(memory), 0)]
    return [(record.tokens, record.squares) for record in records]


@pytest.mark.parametrize(
    ("batch", "work"),
    [
        (IDS, OF_IDS),
        ([IDS, LABELS], OF_IDS),
        ((IMAGES, LABELS), OF_IMAGES),
        ([LABELS, IMAGES], (4, 4.0)),
        ({"weights": torch.ones(4), "input_ids": IDS}, OF_IDS),
        (UserDict(input_ids=IDS), OF_IDS),
        (Pair({"ids": IDS}, LABELS), OF_IDS),
        (torch.nn.Parameter(IMAGES), OF_IMAGES),
        (torch.tensor(3.0), (1, 1.0)),
        (torch.zeros(0, 5), NONE),
        (None, NONE),
        ("text", NONE),
        ([], NONE),
        ({}, NONE),
        (object(), NONE),
    ],
)
def test_the_shape_of_its_token_ids_counts_else_that_of_its_first_tensor(
    batch: Any, work: tuple[int, float]
) -> None:
    assert works(batch, batch) == [work, work]


def test_rows_are_the_sequences_and_their_squares_add_up() -> None:
    assert work_of((4, 10)) == (40, 4 * 10.0**2)
    assert work_of(()) == (1, 1.0)


def test_batches_of_other_lengths_and_of_other_kinds_are_looked_at_anew() -> None:
    short = {"input_ids": IDS[:, :5]}
    assert works({"input_ids": IDS}, short, IDS, {"other": IDS}, [IDS]) == [
        OF_IDS,
        (20, 100.0),
        OF_IDS,
        OF_IDS,
        OF_IDS,
    ]


def test_a_batch_that_lacks_what_the_one_before_had_has_none_and_harms_no_later_one() -> None:
    assert works([IDS], [], [None], [IDS], {"a": IDS}, {"b": IDS}, {"b": IDS}) == [
        OF_IDS,
        NONE,
        NONE,
        OF_IDS,
        OF_IDS,
        NONE,
        OF_IDS,
    ]


def test_where_no_batch_ever_has_a_tensor_none_is_looked_for_any_longer() -> None:
    looked_at: list[int] = []

    class Watched(list[int]):
        def __getitem__(self, key: Any) -> Any:
            looked_at.append(1)
            return super().__getitem__(key)

    works(*(Watched([1, 2]) for _ in range(100)))
    assert len(looked_at) < 20


def test_a_tensor_without_a_shape_has_no_work() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert works(nested, nested, IDS) == [NONE, NONE, OF_IDS]


def test_only_so_many_members_are_looked_at() -> None:
    assert works([*range(100), IDS]) == [NONE]


def test_a_batch_that_makes_what_it_is_asked_for_is_left_as_it_is() -> None:
    first, second = defaultdict(list, ids=IDS), defaultdict(list, other=IDS)
    works(first, second)
    assert list(second) == ["other"]
