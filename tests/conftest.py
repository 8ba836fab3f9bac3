"""Fixtures for all tests. `tests.servers` holds what they are made of."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
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

LONG_S = 5.0
DURATIONS = Path(__file__).with_name("durations.json")
"""File of tests -> seconds that it took when it was last recorded (`--record-durations`)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write how long each file took into tests/durations.json, by which they are ordered",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Only where results come together: a worker of xdist sees but its own."""
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(), "durations")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: one that is left for the end keeps one worker busy
    while the others have nothing to do."""
    recorded: dict[str, float] = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -recorded.get(item.nodeid.partition("::")[0], 0.0))


class Durations:
    """Adds up what each file of tests takes."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """What is quick need not be told: it comes in any order."""
        recorded = json.loads(DURATIONS.read_text()) | self.seconds
        long = {name: round(took, 1) for name, took in recorded.items() if took >= LONG_S}
        DURATIONS.write_text(json.dumps(long, indent=1, sort_keys=True) + "\n")


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
