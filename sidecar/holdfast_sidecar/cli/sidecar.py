"""`holdfast sidecar`: watch one node of one job until told to leave."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast_sidecar.cli.options import serving_options, settings_options
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.config.timeouts import MODES

if TYPE_CHECKING:
    from holdfast_sidecar.loop import Loop

ENDINGS = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.option("--job", required=True, metavar="NAME", help="Job to watch.")
@click.option("--node", required=True, metavar="NAME", help="This node's name inside the job.")
@click.option(
    "--launcher-pid",
    type=int,
    default=0,
    metavar="PID",
    help="Launcher to watch; the sidecar leaves a while after it. Default: stay until told.",
)
@click.option(
    "--slot-holder",
    type=int,
    hidden=True,
    help="Descriptor by which the launcher's holder of snapshot memory is reached.",
)
@serving_options
@click.option("--mode", type=click.Choice(MODES), help="What may be done, not only said.")
@click.option("--verbose", is_flag=True, help="Log every change, not only the important ones.")
@settings_options
def sidecar(
    job: str,
    node: str,
    launcher_pid: int,
    slot_holder: int | None,
    listen: str | None,
    mode: str | None,
    verbose: bool,
    effective: Effective,
) -> None:
    """Watch this node's ranks, GPUs, network and host, and agree with the other nodes over Redis.

    `holdfast run` starts one by itself. Start it by hand beside a plain torchrun, from systemd,
    from a Slurm prolog, or as a DaemonSet:

    \b
      holdfast sidecar --job llm --node $(hostname) --redis redis://head:6379
      holdfast sidecar --job llm --node $(hostname) --listen 0.0.0.0:9750 --listen-insecure
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    settings = _with_flags(effective.settings, {"listen": listen, "mode": mode})
    _watch(job, node, launcher_pid, settings, slot_holder)


def _with_flags(settings: Settings, flags: Mapping[str, object]) -> Settings:
    given: dict[str, Any] = {name: value for name, value in flags.items() if value}
    return dataclasses.replace(settings, sidecar=dataclasses.replace(settings.sidecar, **given))


def _watch(
    job: str, node: str, launcher_pid: int, settings: Settings, slot_holder: int | None
) -> None:
    from holdfast_sidecar.checkpoint.snapshot.memory import inherited_memory
    from holdfast_sidecar.config.paths import NAME, open_shm, places
    from holdfast_sidecar.linux import threads
    from holdfast_sidecar.linux.threads import start_needed_thread
    from holdfast_sidecar.startup import SidecarRecord, Site, await_place, lock_node, write_record
    from holdfast_sidecar.store.connection import open_store
    from holdfast_sidecar.wiring import (
        assemble,
        collect_seldom,
        coordinate,
        open_exporter,
        open_round_trip,
        open_storage_client,
    )

    for what, name in (("job", job), ("node", node)):
        if not NAME.fullmatch(name):
            raise BadInput(f"{name!r} can't name a {what}: use letters, digits and . _ ~ -")
    where = places(settings.paths, job, node)
    with contextlib.suppress(FileNotFoundError):  # made by a launcher that is yet to come
        os.close(open_shm(where.shm))
    threads.take()
    collect_seldom()
    # Every thread inherits the mask, so that the signals wait for the one that asks for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    memory = inherited_memory(slot_holder)
    site = Site(job, node, where, settings, launcher_pid, memory=memory)
    store = open_store(settings.redis, job, os.environ)
    lock = lock_node(where)
    predecessor = await_place(store, site, lock.predecessor)
    # A certificate that is gone is no reason to leave a launcher and its ranks alone.
    served = open_exporter(job, node, settings, where, is_needed=not launcher_pid)
    record = SidecarRecord(job, node, launcher_pid, served.address, served.unserved)
    write_record(where.sidecar_record, record)

    desk, echo = open_storage_client(site), open_round_trip(site)
    coordinator = coordinate(site, store, desk, predecessor, echo)
    lock.pass_on(coordinator.incarnation)
    served.exporter.orders = coordinator.orders
    loop = assemble(site, coordinator, desk, served.exporter, served.address, echo)
    loop.unserved = served.unserved
    coordinator.give_way = loop.leave
    loop.parting.is_awaited = served.last_words.is_awaited
    try:
        # Without it nothing would end this process; its launcher starts another one.
        start_needed_thread(partial(_leave_on_signal, loop, bool(launcher_pid)), "signals")
        loop.run()
    finally:
        served.exporter.close()
        with contextlib.suppress(OSError):
            unlink(owned_file(where.sidecar_record))
        lock.release()
    if coordinator.refusal:
        raise BadInput(coordinator.refusal)


def _leave_on_signal(loop: Loop, has_launcher: bool) -> None:
    """Wait for SIGTERM or SIGINT here: a handler could interrupt the loop while it holds a lock.

    A scheduler's SIGTERM goes to the launcher too, which needs this sidecar until the job is saved
    and then says so by SIGINT; a launcher that dies is followed anyway.
    """
    number = signal.sigwait(ENDINGS)
    while has_launcher and number == signal.SIGTERM:
        logging.getLogger(__name__).info("SIGTERM: staying, the launcher says when to leave")
        number = signal.sigwait(ENDINGS)
    while True:
        logging.getLogger(__name__).info("leaving: %s", signal.Signals(number).name)
        loop.leave()
        number = signal.sigwait(ENDINGS)
