from __future__ import annotations

import pytest
from tests.unit.components.xid.real_lines import NOT_OURS, REAL_LINES

from holdfast_sidecar.components.xid.events import (
    normal_pci,
    parse_line,
    parse_link_error,
    parse_place,
)
from holdfast_sidecar.linux.kmsg import URGENT, WANTED


@pytest.mark.parametrize(("source", "text", "said"), REAL_LINES)
def test_a_real_line_is_understood(source: str, text: str, said: tuple[int, int, str]) -> None:
    event = parse_line(text, 5.0)
    assert event is not None
    assert (event.xid, event.sxid, event.pci) == said
    assert (event.text, event.at_unix_s, event.source) == (text, 5.0, "kmsg")


def test_there_are_forty_of_them_each_with_its_source() -> None:
    assert len(REAL_LINES) >= 40
    assert all(source for source, _, _ in REAL_LINES)


@pytest.mark.parametrize("number", [0, 65536])
def test_what_can_t_be_an_xid_s_number_says_nothing(number: int) -> None:
    assert parse_line(f"NVRM: Xid (PCI:0000:2a:00): {number}, pid=7", 5.0) is None


@pytest.mark.parametrize("text", NOT_OURS)
def test_other_lines_say_nothing(text: str) -> None:
    assert parse_line(text, 5.0) is None


@pytest.mark.parametrize("text", [text for _, text, _ in REAL_LINES])
def test_the_reader_of_the_log_lets_them_through_and_wakes_the_loop(text: str) -> None:
    begins = min(text.find(sign) for sign in ("NVRM: ", "nvidia-nvswitch") if sign in text)
    assert text[begins:].startswith(WANTED)
    assert any(sign in text for sign in URGENT)


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("0000:17:00", "0000:17:00.0"),
        ("0000:17:00.0", "0000:17:00.0"),
        ("00000000:B3:00.0", "0000:b3:00.0"),
        ("000F:01:00", "000f:01:00.0"),
        ("00010000:b3:1c", "10000:b3:1c.0"),
    ],
)
def test_an_address_is_written_as_sysfs_does(told: str, address: str) -> None:
    assert normal_pci(told) == address


@pytest.mark.parametrize(
    ("rest", "action"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("from 0x0 (None) to 0x2 (OS Reboot)", 2),
        ("from 0x1 (GPU Reset Required) to 0x0 (None)", 0),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", 4),
        ("to something else", None),
    ],
)
def test_the_number_says_what_the_gpu_needs_whatever_the_words(
    rest: str, action: int | None
) -> None:
    event = parse_line(f"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed {rest}", 0.0)
    assert event is not None
    assert event.recovery_action == action


@pytest.mark.parametrize(
    ("text", "link", "is_fatal", "sub_code", "status"),
    [
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x0)", 9, True, 37, 0),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0)", 0, True, 38, 0),
        ("RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", 13, False, 0, 8),
        ("NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)", 3, False, 0, 1),
        ("NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", -1, True, 0, 0),
        ("RLW_REMAP Nonfatal XC0 i0 Link 02", 2, False, None, None),
        ("NVLPW_CTRL/NVLPW Nonfatal XC1 i2 Link 17 (0xdeadbeef)", 17, False, 42, None),
        ("fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0)", 14, None, None, None),
    ],
)
def test_an_nvlink_error_is_decoded(
    text: str, link: int, is_fatal: bool | None, sub_code: int | None, status: int | None
) -> None:
    error = parse_link_error(text)
    assert error is not None
    assert (error.link, error.is_fatal, error.sub_code, error.error_status) == (
        link,
        is_fatal,
        sub_code,
        status,
    )


def test_registers_of_an_older_link_say_what_is_wrong_with_it() -> None:
    error = parse_link_error("NVLink: fatal error detected on link 6(0x600010, 0x0, 0x0)")
    assert error is not None
    assert "marginal signal" in error.told
    assert "parity" in error.told


def test_a_line_that_is_no_link_error_decodes_to_nothing() -> None:
    assert parse_link_error("RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error") is None


def test_where_a_kernel_failed_is_read() -> None:
    assert parse_place("Graphics SM Warp Exception on (GPC 7, TPC 2, SM 0): x") == "GPC 7, TPC 2"
    assert parse_place("Graphics Exception: ESR 0x57c730=0xc04000b") == ""
