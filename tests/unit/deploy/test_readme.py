"""The page about deploying names every file, and nothing that is not there."""

from __future__ import annotations

import re

from tests.unit.deploy.known_words import known_variables, mentioned, parse_run
from tests.unit.deploy.manifests import DEPLOY

from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE
from holdfast_sidecar.policy.start import EXIT_BAD_INPUT

TEXT = (DEPLOY / "README.md").read_text()


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT):
        assert (DEPLOY / target).exists(), target


def test_every_file_is_told_of() -> None:
    apart = {"secrets", "prometheus"}
    files = [
        path
        for path in DEPLOY.rglob("*")
        if path.is_file() and not apart & set(path.relative_to(DEPLOY).parts)
    ]
    assert len(files) > 10
    told = TEXT + (DEPLOY / "compose.yaml").read_text()
    missing = [one.name for one in files if one.name not in told and one.name != "README.md"]
    assert missing == []


def test_every_variable_is_known_or_the_batch_scripts() -> None:
    of_script = {"HOLDFAST_CHECKPOINTS", "HOLDFAST_RANKS", "HOLDFAST_SPARES"}
    begins = {"HOLDFAST_SET"}  # of `HOLDFAST_SET_…`
    assert mentioned(TEXT) <= known_variables() | of_script | begins


def test_every_exit_code_is_explained_once() -> None:
    table = TEXT.split("## How a job ends")[1].split("##")[0]
    codes = re.findall(r"^\|[^|]+\| (\d+) \|", table, re.MULTILINE)
    assert sorted(map(int, codes)) == sorted(
        [0, 1, EXIT_BAD_INPUT, EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE]
    )


def test_the_last_command_is_one_that_holdfast_takes() -> None:
    joined = TEXT.replace("\\\n", " ")
    (line,) = re.findall(r"holdfast run (--redis .*?train\.py)", joined, re.DOTALL)
    parsed, effective = parse_run(["holdfast", "run", *line.split()], {})
    assert effective.settings.redis.url == "redis://127.0.0.1:6379"
    assert parsed.torch.nproc_per_node == "2"
