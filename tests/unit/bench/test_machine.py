from __future__ import annotations

import platform
from pathlib import Path

from bench.launch.sidecar_cost import parse_pss_bytes
from bench.machine import parse_cpu_model, read_machine


def test_the_processor_is_named_by_its_model() -> None:
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n") == "Some CPU @ 2 GHz"
    assert parse_cpu_model("nothing known\n") == platform.machine()


def test_the_machine_is_described_without_naming_it() -> None:
    described = read_machine()
    assert {"cores", "memory_gib", "cpu", "os", "python", "torch"} <= set(described)
    text = str(described)
    assert platform.node() not in text
    assert str(Path.home()) not in text


def test_proportional_memory_is_read_in_bytes() -> None:
    assert parse_pss_bytes("Rss:  100 kB\nPss:    40 kB\nPss_Anon: 3 kB\n") == 40 * 1024
