"""A stage on which a script runs as a rank: pages and evidence of its own, no launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hooks.warm_ranks import Nursery, WarmRank

from holdfast.contract import environment, page
from holdfast.contract.page import Ending, Word
from holdfast.rank import attachment

TIMEOUT_S = 100
"""For a machine on which everything else runs as well: most scripts take seconds."""


@dataclass
class Outcome:
    """How a script ended."""

    code: int
    out: str
    err: str


@dataclass
class Stage:
    """Runs scripts; `pages` and `evidence` are what the launcher would have made."""

    folder: Path
    started: list[subprocess.Popen[str] | WarmRank] = field(default_factory=list)
    nursery: Nursery | None = None
    """Where there is one, ranks come from it."""

    @property
    def pages(self) -> Path:
        return self.folder / "pages"

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    def environment(self, rank: int = 0, world_size: int = 1, **changes: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if "HOLDFAST" not in key}
        return {
            **inherited,
            **attachment.worker_environment(inherited),
            environment.PAGE_DIR: str(self.pages),
            environment.EVIDENCE_DIR: str(self.evidence),
            environment.JOB: "job",
            environment.NODE: "node",
            environment.ATTEMPT: "0",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "OMP_NUM_THREADS": "1",
            **changes,
        }

    def script(self, text: str, name: str = "script.py") -> Path:
        """The script's path; one that stands there already is let be, a rank may just read it."""
        path, body = self.folder / name, textwrap.dedent(text)
        if not path.exists() or path.read_text() != body:
            path.write_text(body)
        return path

    def start(self, text: str, env: dict[str, str] | None = None, name: str = "script.py") -> Any:
        """A Popen, or what stands for one."""
        script, env = self.script(text, name), env or self.environment()
        if self.nursery is not None:
            said = self.folder / f"said-{len(self.started)}"
            self.started.append(self.nursery.start(script, env, said))
            return self.started[-1]
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env=env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self, process: Any, timeout_s: float = TIMEOUT_S) -> Outcome:
        out, err = process.communicate(timeout=timeout_s)
        return Outcome(process.returncode, out, err)

    def run(self, text: str, env: dict[str, str] | None = None) -> Outcome:
        return self.end(self.start(text, env))

    def read(self, rank: int = 0, attempt: int = 0) -> bytes:
        return (self.pages / page.page_name(attempt, rank)).read_bytes()

    def word(self, word: Word, rank: int = 0) -> int:
        return page.parse_words(self.read(rank))[word]

    def ending(self, rank: int = 0) -> Ending:
        return Ending(self.word(Word.ENDING, rank))

    def records(self, rank: int = 0) -> list[page.Record]:
        return [record for _, record in page.parse_records(self.read(rank), 0)]

    def last_words(self, rank: int = 0) -> dict[str, str]:
        return page.parse_last_words(self.read(rank)) or {}

    def page_names(self) -> list[str]:
        return sorted(path.name for path in self.pages.iterdir())

    def stub_torch(self) -> str:
        """A path with a torch that imports at once, for what concerns only its import."""
        path = self.folder / "stub"
        path.mkdir(exist_ok=True)
        (path / "torch.py").write_text("")
        return os.pathsep.join([environment.python_path(), str(path)])

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Look again until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    made.pages.mkdir(mode=0o700)
    made.evidence.mkdir(mode=0o700)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where warm ranks come from."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def warm(stage: Stage, nursery: Nursery) -> None:
    """Ranks start warm: for scripts of which how torch is imported is not tested."""
    stage.nursery = nursery
