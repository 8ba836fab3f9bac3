"""Files and slots are worked on a few at once, and the first error is the last."""

import os
import threading

import pytest

from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.manifest import WorkerThreads, count_threads, hash_file, hash_files


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("jobs", "cores", "expected"), [(8, 128, 4), (2, 128, 2), (8, 4, 2), (8, 1, 1), (0, 8, 1)]
)
def test_half_of_the_cores_stay_with_the_ranks(monkeypatch, jobs, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert count_threads(jobs) == expected


def test_answers_come_in_the_order_of_the_jobs():
    met = threading.Event()

    def second():
        met.set()
        return "second"

    jobs = [lambda: met.wait(20) and "first", second]
    assert WorkerThreads(lambda size: None).run(jobs) == ["first", "second"]


def test_the_first_error_stops_the_other_jobs():
    together = threading.Barrier(2, timeout=20)
    threads = WorkerThreads(lambda size: None)

    def fails():
        together.wait()
        raise OSError("disk full")

    def never_ends():
        together.wait()
        while True:
            threads.advance(1)

    with pytest.raises(OSError, match="disk full"):
        threads.run([fails, never_ends])


def test_files_are_hashed_several_at_once(tmp_path, monkeypatch):
    folder, names = LocalFolder(tmp_path), [f"model-{n}-of-4.safetensors" for n in range(4)]
    for name in names:
        folder.write(name, name.encode() * 1000)
    expected = {name: hash_file(folder, name) for name in names}
    together = threading.Barrier(4, timeout=20)
    told: list[int] = []
    open_file = LocalFolder.open

    def meets_the_others(folder, name):
        together.wait()
        return open_file(folder, name)

    monkeypatch.setattr(LocalFolder, "open", meets_the_others)
    assert hash_files(folder, names, told.append) == expected
    assert sum(told) == sum(fact.size for fact in expected.values())


def test_a_file_that_can_not_be_read_is_an_error(tmp_path):
    folder = LocalFolder(tmp_path)
    folder.write("a", b"a")
    with pytest.raises(FileNotFoundError):
        hash_files(folder, ["a", "b"])
