"""Asking a job's leader for something: writes the request that it will see."""

from __future__ import annotations

import socket
import time
import uuid
from typing import Any

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.store import Store, StoreUnavailable, View
from holdfast_sidecar.home import user_name
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.request import Request
from holdfast_sidecar.standing import attached_plan, exists


def look_up(found: FoundJob, store: Store) -> View:
    """The job as it is now; NoSuchJob, or what `store_away` says of a store that is away."""
    try:
        view = store.read()
    except StoreUnavailable as error:
        raise store_away.explanation(found, error) from None
    if not exists(view):
        raise store_away.unknown(found)
    return view


def ask(
    found: FoundJob,
    store: Store,
    kind: str,
    reason: str = "",
    for_s: float = 0.0,
    node: str = "",
    is_forced: bool = False,
    of_watched: bool = False,
    **more: Any,
) -> str:
    """Write a request of this kind; answers its identifier. Errors as in `look_up`.

    of_watched: a job that is only watched can be asked for it, too. more: further fields of a
    Request.
    """
    if attached_plan(look_up(found, store)) is not None and not of_watched:
        raise BadInput(
            f"job {found.job} is only watched here (holdfast attach): ask whoever launched it"
        )
    request = Request(
        identifier=uuid.uuid4().hex[:12],
        kind=kind,
        by=f"{user_name()}@{socket.gethostname()}",
        at_unix_s=time.time(),
        reason=reason,
        for_s=for_s,
        node=node,
        is_forced=is_forced,
        **more,
    )
    try:
        store.report(Section.REQUESTS, request.identifier, encode(request))
    except StoreUnavailable as error:
        raise store_away.explanation(found, error) from None
    return request.identifier
