"""A job whose checkpoints lie on an object store, and that begins again knowing nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job, new_job
from tests.object_store import BUCKET, ObjectStore

from holdfast.contract.storage import child, list_children, open_folder

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

STEPS = 40
OPTIONS = ["--nproc-per-node=2", *CLOSE_ORDERS, "--set=checkpoint.every_steps=25"]


@pytest.fixture
def job(object_store: ObjectStore) -> Iterator[Job]:
    # Its Redis is its own and goes with it: the second run finds its checkpoints by themselves.
    made = new_job(None)
    yield made
    made.close()


def train(job: Job, root: str) -> set[str]:
    """Weights of both ranks, after all steps."""
    for said in job.out.iterdir():
        said.unlink()
    node = job.start("a", [*OPTIONS, f"--checkpoint-dir={root}"], ["resumable", str(STEPS), "0.05"])
    assert node.wait(150) == 0, node.output
    return {(job.out / f"weights-{rank}").read_text() for rank in range(2)}


def test_the_second_run_of_a_job_goes_on_from_the_object_store(
    job: Job, object_store: ObjectStore
) -> None:
    root = f"{object_store.url}/jobs/mine"
    weights = train(job, root)
    sealed = [
        name
        for name in list_children(root)
        if open_folder(child(root, name)).exists("manifest.json")
    ]
    assert sealed
    assert train(job, root) == weights
    begun = {path.read_text() for path in job.out.glob("start-*")}
    assert begun == {str(int(sealed[-1].split("-")[1]))}
    unfinished = object_store.client().list_multipart_uploads(Bucket=BUCKET, Prefix="jobs/mine")
    assert unfinished.get("Uploads", []) == []
