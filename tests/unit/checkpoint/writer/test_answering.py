"""What the writer says of a directory in which there is more than this job's checkpoints."""

import logging

import pytest
from tests.unit.checkpoint.sealed import JOB, seal

from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.writer.requests import WhatToResume
from holdfast_sidecar.checkpoint.writer.service import Answering
from holdfast_sidecar.config.settings import CheckpointSettings


@pytest.fixture
def answering(tmp_path):
    seal(tmp_path, 10, "aa")
    return Answering(JOB, CheckpointSettings(dir=str(tmp_path)))


def resumable(answering):
    listed = answering.answer(WhatToResume("1 0"), lambda *_: None)
    return [candidate.identifier for candidate in listed.candidates]


def test_folders_of_others_are_looked_for_once_by_each_writer(answering, monkeypatch, caplog):
    looks = []

    def others(storage):
        looks.append(storage)
        return ["s3://b/ck also holds best: not Holdfast's, left alone"]

    monkeypatch.setattr(CheckpointDirectory, "left_alone_behind_url", others)
    assert resumable(answering) == resumable(answering) == ["aa"]
    assert (len(looks), len(caplog.messages)) == (1, 1)


def test_a_folder_of_others_that_nobody_may_look_into_keeps_no_job_from_resuming(
    answering, monkeypatch, caplog
):
    def forbidden(storage):
        raise PermissionError("403 Forbidden")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(CheckpointDirectory, "left_alone_behind_url", forbidden)
    assert resumable(answering) == resumable(answering) == ["aa"]
    assert len([line for line in caplog.messages if "403 Forbidden" in line]) == 1
