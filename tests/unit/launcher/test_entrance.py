"""How long a node waits for others, from --rdzv-conf and the settings."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.config.settings import (  # noqa: E402
    BadInput,
    PolicySettings,
)
from holdfast_sidecar.launcher.join import Timeouts, read_timeouts  # noqa: E402

POLICY = PolicySettings(join_timeout_s=42.0)


def test_timeouts_come_from_rdzv_conf_else_from_the_settings() -> None:
    assert read_timeouts({}, POLICY) == Timeouts(42.0, 30.0)
    conf = {"join_timeout": "20", "last_call_timeout": "0.5", "node": "a"}
    assert read_timeouts(conf, POLICY) == Timeouts(20.0, 0.5)


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "soon", ""])
def test_a_timeout_that_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--rdzv-conf: last_call_timeout"):
        read_timeouts({"last_call_timeout": text}, POLICY)
