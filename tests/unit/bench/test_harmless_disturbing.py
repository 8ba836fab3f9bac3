"""What is done to odd jobs says so when it had no effect."""

from __future__ import annotations

import io
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.benchmark import NotRun
from bench.harmless import disturbing, storage
from bench.harmless.job import FOREIGN, Job, Run, nothing
from bench.harmless.jobs import JOBS
from bench.harmless.object_store import Ailing
from bench.harmless.redis_ways import Way

JOB = Job("odd", "work", ("working.py", "nothing_odd"), ranks=1, limit_s=0.2)


@pytest.fixture
def run() -> Iterator[Run]:
    with Run(JOB, 1, is_held=True) as made:
        yield made


def has_stepped(run: Run, step: int = 9) -> None:
    (run.out / "step-0").write_text(str(step))


def test_a_run_that_makes_no_steps_in_time_can_not_be_disturbed(run: Run) -> None:
    has_stepped(run, 4)
    with pytest.raises(NotRun, match="never made 5 steps"):
        run.await_steps(5)
    has_stepped(run, 5)
    run.await_steps(5)


def test_what_outlasts_its_job_was_not_seen_by_it(run: Run) -> None:
    run.must_run_still()
    (run.out / "result-0.json").write_text("{}")
    with pytest.raises(NotRun, match="it ended before"):
        run.must_run_still()


def test_stopping_nothing_is_no_stop() -> None:
    with pytest.raises(NotRun, match="none was stopped"):
        disturbing.stop_all([], 0.0)
    with subprocess.Popen(["sleep", "30"]) as sleeping:
        disturbing.stop_all([sleeping.pid], 0.01)
        sleeping.kill()
    with pytest.raises(NotRun):
        disturbing.stop_all([sleeping.pid], 0.0)


def test_without_sidecars_none_is_killed_nor_stopped(run: Run) -> None:
    has_stepped(run)
    for during in (disturbing.sidecars_die, disturbing.sidecars_stand_still(0.0)):
        with pytest.raises(NotRun):
            during(run)


def test_a_rank_that_is_gone_is_not_killed(run: Run) -> None:
    has_stepped(run, 60)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (run.out / "starts-0").write_text(f"{gone.pid}\n")
    with pytest.raises(NotRun, match="gone before"):
        disturbing.rank_killed(run)


def test_what_is_not_preloaded_does_not_count(run: Run) -> None:
    has_stepped(run)
    run.more["LD_PRELOAD"] = "/nowhere.so"
    (run.out / "starts-0").write_text("1\n")
    with pytest.raises((NotRun, PermissionError)):
        storage.must_be_loaded(run)


def test_somebodys_file_is_planted_where_there_is_room_and_missed_when_it_changes(
    run: Run,
) -> None:
    run.plant("state")
    run.plant("no such directory")
    assert list(run.foreign) == [run.directory / "state" / FOREIGN]
    assert run._outcome().lost == []
    (run.directory / "state" / FOREIGN).write_text("ours now")
    assert run._outcome().lost == [f"state/{FOREIGN}"]


def test_a_way_that_is_cut_keeps_back_what_is_sent_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "far.sock"
    with socket.socket(socket.AF_UNIX) as far:
        far.bind(str(path))
        far.listen()
        far.settimeout(10)
        way = Way(path)
        with socket.create_connection(("127.0.0.1", way.port)) as near, far.accept()[0] as end:
            end.settimeout(10)
            near.sendall(b"one")
            assert end.recv(10) == b"one"
            assert way.kept == 0
            way.cut()
            near.sendall(b"two")
            while not way.kept:
                pass
            way.mend()
            assert end.recv(10) == b"two"
        way.close()


def answered(environ: Any, start: Any) -> Iterable[bytes]:
    start("200 OK", [])
    return [b"well"]


def test_an_ailing_store_refuses_its_share_and_counts_it() -> None:
    store = Ailing(answered, 0.0, 0.4)
    told: list[str] = []

    def ask() -> None:
        environ = {"CONTENT_LENGTH": "3", "wsgi.input": io.BytesIO(b"abc")}
        store(environ, lambda status, headers: told.append(status[:3]))

    ask()
    store.is_ailing = True
    for _ in range(10):
        ask()
    assert (told.count("503"), store.ailed) == (4, 4)
    assert told[0] == "200"


def test_whoever_is_to_be_killed_or_cut_off_has_something_done_to_it() -> None:
    for job in JOBS:
        is_left_alone = job.during is nothing
        assert not (is_left_alone and job.starts > 1), job.name
        assert not (is_left_alone and job.row == "redis"), job.name
