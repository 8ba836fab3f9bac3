"""What a quarantine and a node say of a machine's hardware, and what older records lack of it."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.linux.files import read_boot
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import NodeReport


def test_a_quarantine_of_an_older_version_is_of_the_whole_machine_until_its_time() -> None:
    old = '{"part":"m","node":"a","since_unix_s":1.0,"until_unix_s":2.0,"evidence":["x"],"by":""}'
    assert decode(Quarantine, old) == Quarantine("m", "a", 1.0, 2.0, ["x"])


def test_a_quarantine_keeps_its_gpu_remedy_and_boot_on_the_wire() -> None:
    ill = Quarantine("m", "a", 1.0, 2.0, gpu="GPU-1", remedy="reset_gpu", boot="b")
    assert decode(Quarantine, encode(ill)) == ill


def test_a_node_of_an_older_version_does_not_say_when_it_was_started() -> None:
    report = NodeReport("a", "i", 1, 0, 0, attempt=0, launcher_alive=True, boot="b")
    text = encode(report)
    assert decode(NodeReport, text) == report
    older = decode(NodeReport, text.replace('"boot":"b",', ""))
    assert older is not None
    assert older.boot == ""


def test_the_boot_id_is_read_and_empty_where_it_can_t_be(tmp_path: Path) -> None:
    assert read_boot() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert read_boot(str(tmp_path / "none")) == ""
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\xff" * 5000)
    assert len(read_boot(str(garbage))) <= 64
