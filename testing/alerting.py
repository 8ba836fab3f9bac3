"""Prometheus and Alertmanager, started with the shipped files."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlencode

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration.job import DemonstrationStopped
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.linux.process import die_with
from testing.pager import Receiver, prometheus_settings, routes_to

# Prometheus and Alertmanager as children: on a free port of loopback, and gone with us.

READY_S = 20.0
"""Measured: ready within half a second; the rest is for a machine under load."""
END_WITHIN_S = 10.0
PORT_ATTEMPTS = 3
"""A free port may be taken by someone else before the program binds it."""


@dataclass(frozen=True)
class Daemon:
    """One that runs."""

    name: str
    address: str
    """host:port."""
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def url(self) -> str:
        """For people, and for questions."""
        return f"http://{self.address}"

    def has_ended(self) -> bool:
        """Whether it is gone, by itself or not."""
        return self.process.poll() is not None

    def check(self) -> None:
        """DemonstrationStopped where it has ended by itself: nobody could be paged then."""
        if self.has_ended():
            raise DemonstrationStopped(f"{self.name} has ended by itself", self.log)

    def end(self) -> None:
        """Let it go, and wait for that."""
        self.process.terminate()
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(name: str, command_at: Callable[[str], Sequence[str]], log: Path) -> Daemon:
    """Start it and wait until it is ready. DemonstrationStopped when it does not get so far.

    command_at: host:port -> command line. Call it from a thread that lives as long as the program
    shall: the kernel ends it with that thread.
    """
    for _ in range(PORT_ATTEMPTS):
        address = f"127.0.0.1:{free_port()}"
        daemon = Daemon(name, address, log, _launch(command_at(address), log))
        if _becomes_ready(daemon):
            return daemon
        daemon.end()
    raise DemonstrationStopped(f"{name} does not start", log)


def prometheus_command(program: str, folder: Path, resend_s: float, address: str) -> list[str]:
    """With prometheus.yml and its data in this folder; what still fires is said again so often."""
    return [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--rules.alert.resend-delay={round(1000 * resend_s)}ms",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]


def alertmanager_command(program: str, folder: Path, address: str) -> list[str]:
    """With alertmanager.yml and its data in this folder; it looks for no others of its kind."""
    return [
        program,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager-data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]


def fetch(url: str, timeout_s: float = 5.0) -> bytes:
    """What an address of this machine answers, whatever proxy is set for others. OSError or
    HTTPException where it does not."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=timeout_s) as answer:
        body: bytes = answer.read()
        return body


def _launch(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it through us
            preexec_fn=partial(die_with, os.getpid()),
        )


def _becomes_ready(daemon: Daemon) -> bool:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and not daemon.has_ended():
        with suppress(OSError, HTTPException):
            fetch(f"{daemon.url}/-/ready", timeout_s=1.0)
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """One of loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# What Prometheus knows of the job by now.


def knows_the_job(run: str, nodes: int) -> str:
    """An expression that gives something once every node is scraped, the leader told of all of
    them, and the rules have seen the run train."""
    beats = f'holdfast_node_last_heartbeat_timestamp_seconds{{run="{run}"}}'
    parts = (
        f'(count(up{{job="holdfast-sidecar",run="{run}"}} == 1) == {nodes})',
        f"(count({beats}) == {nodes})",
        f'(run:holdfast_job_short:bool{{run="{run}"}} == 0)',
    )
    return " and on () ".join(parts)


def holds(prometheus: str, expression: str) -> bool:
    """Whether the expression gives anything now; False also while there is no answer."""
    try:
        answer = fetch(f"{prometheus}/api/v1/query?{urlencode({'query': expression})}")
        return bool(json.loads(answer)["data"]["result"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return False


# Waits of rules, routes and scraping, all shorter by one factor. Pure: text in, text out.
#
# What a wait is compared with (how soon Holdfast notices, how long a restart takes) stays as long
# as it is. So this shows that an alert is paged, once and with its cause; how long that takes with
# the shipped waits, or whether a spare is quicker than the page, only those show.

WAITS = (
    *("interval", "for", "keep_firing_for"),
    *("group_wait", "group_interval", "repeat_interval", "resolve_timeout"),
    *("scrape_interval", "scrape_timeout", "evaluation_interval", "refresh_interval"),
)

_WAIT = re.compile(rf"^(\s*(?:- )?(?:{'|'.join(WAITS)}): )((?:\d+(?:ms|s|m|h|d))+)$", re.MULTILINE)
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_SILENCE = re.compile(r"(node:holdfast_silence:seconds\[\w+\]\) > )(\d+)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def hastened(text: str, factor: float) -> str:
    """A file of rules, of routes or of Prometheus itself, with every wait divided by `factor`.

    Also for how long a node must not have been heard of, which stands in expressions. Windows over
    which series are looked at stay: they only bridge gaps.
    """
    shorter = _WAIT.sub(lambda found: found[1] + _divided(found[2], factor), text)
    return _SILENCE.sub(lambda found: f"{found[1]}{int(found[2]) / factor:g}", shorter)


def seconds(duration: str) -> float:
    """A duration as Prometheus writes it: `1m30s`."""
    return sum(int(count) * _UNIT_S[unit] for count, unit in _PART.findall(duration))


def _divided(duration: str, factor: float) -> str:
    """In milliseconds, for which nothing has to be rounded away; 0 stays 0."""
    return duration if factor == 1 else f"{round(1000 * seconds(duration) / factor)}ms"


# The programs that the stack needs beside ours, and where to get them.


@dataclass(frozen=True)
class Requirement:
    """A program, by any of its names."""

    called: str
    names: tuple[str, ...]
    package: str
    """Debian's and Ubuntu's."""

    @property
    def how_to_get_it(self) -> str:
        """One line for people."""
        return (
            f"{self.called} is not installed: apt-get install {self.package} (Debian, Ubuntu), "
            "or https://prometheus.io/download/"
        )


PROMETHEUS = Requirement("Prometheus", ("prometheus",), "prometheus")
ALERTMANAGER = Requirement(
    "Alertmanager", ("prometheus-alertmanager", "alertmanager"), "prometheus-alertmanager"
)
"""Debian's name first: there a program called `alertmanager` would be another one."""

ALL = (PROMETHEUS, ALERTMANAGER)


def find_programs(which: Callable[[str], str | None]) -> dict[Requirement, str]:
    """Path of each one that is here. which: as `shutil.which`."""
    found = {one: next(filter(None, map(which, one.names)), None) for one in ALL}
    return {one: path for one, path in found.items() if path is not None}


def missing(found: Mapping[Requirement, str]) -> list[str]:
    """A line for each one that is not."""
    return [one.how_to_get_it for one in ALL if one not in found]


EXPORT_LIMIT_S = 30.0
"""It writes some hundred small files."""
RESEND_S = 60.0
"""Prometheus' own default. What it says before it has found Alertmanager is lost until then."""


@dataclass(frozen=True)
class Alerting:
    """Both, running."""

    prometheus: Daemon
    alertmanager: Daemon

    def check(self) -> None:
        """DemonstrationStopped where one of them is gone."""
        for daemon in (self.prometheus, self.alertmanager):
            daemon.check()


@contextmanager
def run_alerting(
    folder: Path,
    found: Mapping[Requirement, str],
    sidecars: Sequence[str],
    factor: float,
    receiver: Receiver,
) -> Iterator[Alerting]:
    """Until the end of the block. DemonstrationStopped where one of them does not start.

    folder: theirs alone. sidecars: host:port of those that lead to all others. factor: by how much
    the shipped waits are shortened. receiver: who is on call, and serves the runbooks.
    """
    folder.mkdir()
    _export(folder, receiver.runbooks_url)
    _hasten(folder, factor)
    routes = folder / "alertmanager.yml"
    routes.write_text(routes_to(routes.read_text(), receiver.url))
    with ExitStack() as up:
        manager = start(
            "Alertmanager",
            partial(alertmanager_command, found[ALERTMANAGER], folder),
            folder / "alertmanager.log",
        )
        up.callback(manager.end)
        shipped = hastened(asset("deploy/prometheus/prometheus.yml").read_text(), factor)
        (folder / "prometheus.yml").write_text(
            prometheus_settings(shipped, sidecars, manager.address)
        )
        prometheus = start(
            "Prometheus",
            partial(prometheus_command, found[PROMETHEUS], folder, RESEND_S / factor),
            folder / "prometheus.log",
        )
        up.callback(prometheus.end)
        yield Alerting(prometheus, manager)


def _export(folder: Path, runbooks: str) -> None:
    """As a person does it."""
    try:
        done = subprocess.run(
            job.export_alerts(folder, runbooks),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXPORT_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DemonstrationStopped("holdfast alerts export does not end") from None
    if done.returncode != 0:
        raise DemonstrationStopped(f"holdfast alerts export: {done.stderr.strip()}")


def _hasten(folder: Path, factor: float) -> None:
    for path in (*folder.glob("rules/*.yaml"), folder / "alertmanager.yml"):
        path.write_text(hastened(path.read_text(), factor))
