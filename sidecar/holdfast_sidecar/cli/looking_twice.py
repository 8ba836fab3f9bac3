"""Two readings of a job's store, since a heartbeat proves life only by moving."""

from __future__ import annotations

import time

from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.export.status import exists, is_settled
from holdfast_sidecar.store.protocol import Store, StoreUnavailable, View


def read_twice(found: FoundJob, patience_s: float) -> tuple[View, View]:
    """`look_twice` at a job that was found; what `store_away` says where nothing is told of it."""
    store = found.open_store()
    try:
        before, after = look_twice(store, patience_s)
    except StoreUnavailable as error:
        raise store_away.explanation(found, error) from None
    finally:
        store.close()
    if not exists(after):
        raise store_away.unknown(found)
    return before, after


def look_twice(store: Store, patience_s: float) -> tuple[View, View]:
    """Two readings, far enough apart that every living heartbeat has moved between them."""
    before = after = store.read()
    end_s = time.monotonic() + patience_s
    while not is_settled(before, after) and time.monotonic() < end_s:
        store.wait(0.1)
        after = store.read()
    return before, after
