"""Twelve ways to hang, each in a real job of three ranks: told soon, the right one blamed, ended
where it is proven, left alone where it is only silent."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.hangs.run_of_all import CULPRIT, PATIENT_S, PROGRAMS, Told, start

sys.path.insert(0, str(PROGRAMS))

from kinds import KINDS, Kind

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

STOOD = re.compile(rf"rank {CULPRIT} (?:stopped\b|in .+\.py:\d+\))")
"""Where its main thread was, from its stack."""

TOLD_WITHIN_S = 5.0
ACTED_WITHIN_S = 10.0
"""On a machine on which all else runs as well; how soon it is on an idle one is a benchmark."""


@pytest.fixture(scope="module")
def story() -> Iterator[dict[str, Told]]:
    """What was told and done, by kind, in one job whose every attempt hangs in another way."""
    pytest.importorskip("torch")
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    server = servers.plain_on_socket(folder).start()
    job = start(server, [kind.name for kind in KINDS])
    try:
        told = {
            kind.name: job.follow(attempt, kind.name, kind.is_provable, ACTED_WITHIN_S)
            for attempt, kind in enumerate(KINDS)
        }
        assert job.launcher.wait() == 0, job.launcher.output
        for attempt, kind in enumerate(KINDS):
            job.conclude(attempt, told[kind.name])
        yield told
    finally:
        job.close()
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_hang_is_told_its_culprit_named_and_ended_where_it_is_proven(
    kind: Kind, story: dict[str, Told]
) -> None:
    told = story[kind.name]
    assert told.declared_s is not None, told
    assert told.declared_s < TOLD_WITHIN_S, told
    if not kind.is_provable:
        assert told.acted_s is None, told
        assert not any(finding.acts for finding in told.findings), told
        assert told.surest.ranks == [CULPRIT], told
        # It was killed then, but the job had lost its time since it hung.
        assert told.incident is not None
        assert told.incident.cause == "crash", told
        assert told.incident.detected_unix_s - told.incident.since_unix_s > PATIENT_S, told
        return
    assert told.acted_s is not None, told
    assert told.incident is not None
    assert told.incident.cause == "hang", told
    assert told.incident.culprit_ranks == [CULPRIT], told
    assert told.has_evidence, told
    assert any(STOOD.match(line) for line in told.incident.evidence), told
