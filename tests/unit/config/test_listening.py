"""Addresses to listen on."""

import pytest

from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.settings import BadInput


def test_addresses_are_read_with_care() -> None:
    assert parse_listen("0.0.0.0:9750") == ("0.0.0.0", 9750)
    assert parse_listen(":9750") == ("127.0.0.1", 9750)
    for wrong in ("9750x", "host", "host:", "host:99999"):
        with pytest.raises(BadInput, match="HOST:PORT"):
            parse_listen(wrong)
