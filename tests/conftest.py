"""Fixtures for all tests. `tests.servers` holds what they are made of."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that tests can import tests.servers

from testing.fake_nvml.driver import STATE_VARIABLE, FakeNvml
from tests import fake_nvml as nvml
from tests import object_store as s3
from tests import servers

os.umask(0o022)  # what tests make stands for what Holdfast makes, which others can't write

LONG = (
    "end_to_end/faults/test_slow_node.py",
    "end_to_end/oncall/test_one_evening.py",
    "end_to_end/hardware/test_stories.py",
    "end_to_end/hangs/test_twelve_hangs.py",
    "end_to_end/faults/test_health_gate.py",
    "end_to_end/faults/test_node_death.py",
    "end_to_end/faults/test_same_result.py",
    "end_to_end/faults/test_kills_at_any_moment.py",
    "end_to_end/faults/test_jobs_together.py",
    "end_to_end/faults/test_planned_work.py",
    "end_to_end/checkpoint/test_bad_numbers.py",
)
"""Files that take some 40 s or more, the longest first. One that is left for the end keeps one
worker busy while the others have nothing to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files come first, then the others as they were found."""
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(str(item.path), len(LONG)))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary directory whose path leaves room for a Unix socket (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(short_path: Path) -> Iterator[servers.Server]:
    """A running server on a Unix socket."""
    started = servers.plain_on_socket(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def tcp_server(short_path: Path) -> Iterator[servers.Server]:
    """A running server on a loopback port."""
    started = servers.plain_on_port(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def tls_server(short_path: Path) -> Iterator[servers.Server]:
    """A running server that speaks TLS only (mark the test redis_server)."""
    started = servers.with_tls(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def sentinels(short_path: Path) -> Iterator[servers.Sentinels]:
    """Master, replica and three sentinels, running (mark the test redis_server)."""
    started = servers.behind_sentinels(short_path)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def object_store_server() -> Iterator[s3.ObjectStore]:
    """One S3 server for all tests; take `object_store`."""
    with s3.running() as store:
        yield store


@pytest.fixture
def object_store(
    object_store_server: s3.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> s3.ObjectStore:
    """An S3 server that this process and its children reach by s3:// URLs."""
    for name, value in object_store_server.environment.items():
        monkeypatch.setenv(name, value)
    return object_store_server


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake libnvidia-ml.so.1, for LD_LIBRARY_PATH (its parent) of a process."""
    return nvml.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(
    tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeNvml]:
    """Eight healthy Hopper GPUs, for this process and, by its environment, for its children."""
    fake = FakeNvml.create(tmp_path / "nvml.state")
    monkeypatch.setenv(STATE_VARIABLE, str(fake.path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield fake
    sys.modules.pop("pynvml", None)
    fake.release()
    fake.close()


@pytest.fixture
def pynvml(fake_nvml: FakeNvml, nvml_library: Path) -> ModuleType:
    """The real nvidia-ml-py, freshly loaded in this process, on the fake library."""
    return nvml.fresh_pynvml(nvml_library)
