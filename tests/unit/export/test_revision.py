from __future__ import annotations

import json

from holdfast_sidecar.export.sidecar_metrics import parse_revision, read_revision


def test_the_commit_is_what_pip_noted() -> None:
    noted = {"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}
    assert parse_revision(json.dumps(noted)) == "abc123"


def test_where_nobody_noted_one_there_is_none() -> None:
    assert parse_revision("") == ""
    assert parse_revision('{"dir_info": {"editable": true}, "url": "file:///x"}') == ""
    assert parse_revision("[]") == ""
    assert read_revision("no-such-package") == ""
