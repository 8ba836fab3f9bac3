"""What Prometheus would know of a made-up job after a day, as far as rules look back on it for more
than the benchmark lasts. Written as blocks before it starts; what is younger it scrapes itself.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark import NotRun
from bench.oncall.made_fleet import PROBES
from bench.oncall.made_job import RANKS_A_NODE, RUN
from bench.oncall.names import SCRAPE_JOB
from holdfast_sidecar.records.account import Category

PROMTOOL = "promtool"
EVERY_S = 15
BLOCK_S = 7200
"""As long as Prometheus' own first blocks: what promtool is given at once becomes one of them."""
DAY_S, SIX_HOURS_S, HOUR_S = 86_400, 6 * 3600, 3600
LIMIT_S = 120.0


@dataclass(frozen=True)
class Past:
    """A series, and for how long it has been there. grows: by one a second, else it is 1."""

    name: str
    labels: tuple[tuple[str, str], ...]
    for_s: int
    grows: bool = False

    @property
    def spelled(self) -> str:
        """As it stands before the value."""
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels)
        return f"holdfast_{self.name}{{{labels}}}"


def series_of(addresses: dict[str, str]) -> Iterator[Past]:
    """All of them; of each name in one go, as OpenMetrics wants it. addresses: by node."""
    job = (("job", SCRAPE_JOB), ("run", RUN))
    own = [(*job, ("node", node), ("instance", where)) for node, where in addresses.items()]
    for name in ("job_time_seconds_total", "job_gpu_time_seconds_total"):
        for category in Category:
            labels = (*job, ("category", category.value))
            yield Past(name, labels, DAY_S, grows=category is Category.PRODUCTIVE)
    for node in own:
        for probe in PROBES:
            yield Past("probe_up", (*node, ("probe", probe)), DAY_S)
    for node in own:
        room = ("room", "checkpoint")
        yield Past("host_room_available_bytes", (*node, room), SIX_HOURS_S)
    for node in own:
        for number in range(RANKS_A_NODE):
            port = (("device", f"mlx5_{number}"), ("port", "1"))
            yield Past("rdma_transmit_bytes_total", (*node, *port), HOUR_S, grows=True)


def lines(
    series: Iterable[Past], begin_unix_s: int, end_unix_s: int, now_unix_s: int
) -> Iterator[str]:
    """Every sample from `begin` on and before `end`, in OpenMetrics; there are none of `now`."""
    for one in series:
        first = max(begin_unix_s, now_unix_s - one.for_s)
        first += -first % EVERY_S
        spelled = one.spelled
        for at in range(first, min(end_unix_s, now_unix_s), EVERY_S):
            yield f"{spelled} {at - (now_unix_s - DAY_S) if one.grows else 1} {at}\n"
    yield "# EOF\n"


def write_blocks(folder: Path, addresses: dict[str, str], now_unix_s: int) -> None:
    """Into the directory that Prometheus will keep its own in."""
    program = shutil.which(PROMTOOL)
    if program is None:
        raise NotRun(f"{PROMTOOL} is not installed")
    series, text = list(series_of(addresses)), folder / "yesterday.om"
    begin = now_unix_s - DAY_S
    for block in range(begin - begin % BLOCK_S, now_unix_s - EVERY_S, BLOCK_S):
        with text.open("w") as file:
            file.writelines(lines(series, block, block + BLOCK_S, now_unix_s))
        _make(program, text, folder / "data")
    text.unlink()


def _make(program: str, text: Path, data: Path) -> None:
    making = [program, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    try:
        subprocess.run(making, check=True, capture_output=True, timeout=LIMIT_S)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise NotRun(f"{PROMTOOL}: {said[-1] if said else error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise NotRun(f"{PROMTOOL} took longer than {LIMIT_S:g} s") from None
