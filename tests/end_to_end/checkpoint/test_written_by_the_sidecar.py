"""Checkpoints that the sidecar's writer makes from snapshots: what dies meanwhile costs nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job, await_exit, new_job

from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.store.protocol import Section

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

LIFE = ["resumable", "100000", "0.02"]


@pytest.fixture
def lonely() -> Iterator[Job]:
    """A job with a server of its launcher's own."""
    made = new_job(None)
    yield made
    made.close()


def options(job: Job, *more: str) -> list[str]:
    places = [f"--checkpoint-dir={job.folder / 'ck'}", "--set=snapshot.every_steps=1"]
    return ["--nproc-per-node=2", *CLOSE_ORDERS, *places, *more]


def order(job: Job) -> CheckpointOrder | None:
    assert job.server is not None
    text = job.server.store(job.name).read().section(Section.CHECKPOINT).get("current", "")
    return decode(CheckpointOrder, text)


def entered(job: Job) -> dict[str, LedgerEntry]:
    assert job.server is not None
    texts = job.server.store(job.name).read().section(Section.LEDGER)
    found = {name: decode(LedgerEntry, text) for name, text in texts.items()}
    return {name: entry for name, entry in found.items() if entry is not None}


def writers(job: Job) -> list[psutil.Process]:
    """The writers that this job's sidecar has started and that live."""
    try:
        children = psutil.Process(job.sidecar("a")).children()
    except (psutil.NoSuchProcess, ValueError):
        return []
    return [child for child in children if "holdfast_sidecar.checkpoint.writer" in _title(child)]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def freeze_in_the_middle(job: Job) -> tuple[psutil.Process, CheckpointOrder]:
    """A writer that was stopped, and the order that all ranks have copied for."""
    job.await_stepping(2)
    job.await_that(lambda: has_saved_by_snapshot(job), "the ranks have slots")
    (writer,) = writers(job)
    writer.suspend()

    def is_writing() -> bool:
        found = order(job)
        return found is not None and found.state == "writing"

    job.await_that(is_writing, "all have copied")
    found = order(job)
    assert found is not None
    return writer, found


def has_saved_by_snapshot(job: Job) -> bool:
    return any((Path(entry.path) / "__0_written.json").exists() for entry in entered(job).values())


def completed(job: Job, identifier: str) -> Callable[[], bool]:
    return lambda: identifier in entered(job)


def test_a_rank_that_dies_while_its_checkpoint_is_written_costs_nothing(job: Job) -> None:
    job.start("a", options(job, "--checkpoint-every=30steps"), LIFE)
    writer, copied = freeze_in_the_middle(job)
    victim = job.ranks()[1].pid
    os.kill(victim, signal.SIGKILL)
    await_exit(victim)
    writer.resume()
    job.await_stepping(2, attempt=1)
    job.await_that(completed(job, copied.identifier), "it is complete all the same")
    entry = entered(job)[copied.identifier]
    assert (entry.attempt, entry.step, entry.world_size) == (0, copied.step, 2)


def test_storage_that_hangs_costs_checkpoints_and_nothing_else(job: Job) -> None:
    job.start("a", options(job, "--checkpoint-every=30steps"), LIFE)
    writer, copied = freeze_in_the_middle(job)
    lease, attempt = job.lease(), job.ranks()[0].attempt
    job.await_steps(150)  # three seconds at the least: a lease would be over
    assert job.lease() == lease
    assert job.ranks()[0].attempt == attempt
    os.kill(writer.pid, signal.SIGKILL)
    job.await_that(
        lambda: (o := order(job)) is not None and o.identifier != copied.identifier,
        "another one is armed",
    )
    known = set(entered(job))
    job.await_that(lambda: bool(entered(job).keys() - known), "the next one is complete")
    assert copied.identifier not in entered(job)
    folder = job.folder / "ck"
    assert not (Path(copied.path) / "manifest.json").exists(), list(folder.iterdir())
    assert job.incidents() == []


def test_a_sidecar_that_dies_while_its_writer_writes_leaves_no_torn_checkpoint(job: Job) -> None:
    job.start("a", options(job, "--checkpoint-every=30steps"), LIFE)
    writer, copied = freeze_in_the_middle(job)
    sidecar = job.sidecar("a")
    os.kill(sidecar, signal.SIGKILL)
    await_exit(sidecar)
    await_exit(writer.pid)
    storage = CheckpointDirectory(job.name, CheckpointSettings(dir=str(job.folder / "ck")))
    assert copied.identifier not in {kept.identifier for kept in storage.kept()}
    job.await_that(lambda: job.sidecar("a") not in (0, sidecar), "another sidecar watches")
    known = set(entered(job))
    job.await_that(lambda: bool(entered(job).keys() - known), "the next one is complete")
    assert all(kept.is_whole for kept in storage.kept())
    assert job.incidents() == []


def test_a_launcher_that_dies_alone_leaves_its_newest_snapshot_on_storage(lonely: Job) -> None:
    job = lonely
    node = job.start("a", options(job, "--set=checkpoint.least_every_s=3600"), LIFE)
    job.await_stepping(2)
    job.await_that(lambda: bool(find(job.shm, "*/*/*/snapshots/rank-1-*")), "slots")
    reached = min(rank.step for rank in job.await_steps(20).values())  # that both have completed
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait()
    sidecar = job.sidecar("a")
    await_exit(sidecar)
    storage = CheckpointDirectory(job.name, CheckpointSettings(dir=str(job.folder / "ck")))
    (kept,) = storage.kept()
    assert kept.may_be_resumed
    assert (kept.manifest.trigger, kept.manifest.world_size) == ("failure", 2)
    assert kept.manifest.step >= reached
    job.start("a", options(job), LIFE)
    assert job.await_resumed(2, attempt=1) == kept.manifest.step
    assert not find(job.shm, "*/*/*/attempt-0-*")
