from __future__ import annotations

import pytest

from holdfast_sidecar.records.formatting import how_it_ended


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (0, "exited with code 0"),
        (1, "exited with code 1"),
        (-9, "was ended by SIGKILL"),
        (-40, "was ended by signal 40"),
    ],
)
def test_the_end_of_a_process_is_told_with_the_name_of_its_signal(
    exit_code: int, words: str
) -> None:
    assert how_it_ended(exit_code) == words
