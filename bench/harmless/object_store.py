"""An object store for an odd job's checkpoints (moto's S3 on loopback), slow or failing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.benchmark import NotRun
from bench.harmless.disturbing import Step
from bench.harmless.job import FOREIGN, Run

BUCKET = "odd"
KEYS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "tester",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
UNAVAILABLE = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Ailing:
    """A WSGI application in front of the store's, which makes it wait or fail."""

    def __init__(self, inner: Callable[..., Iterable[bytes]], slow_s: float, share: float) -> None:
        self._inner = inner
        self._slow_s = slow_s
        self._share = share
        self._asked = 0
        self.ailed = 0
        """Requests that were slow, or refused."""
        self.is_ailing = False

    def __call__(self, environ: Any, start: Callable[..., Any]) -> Iterable[bytes]:
        if not self.is_ailing:
            return self._inner(environ, start)
        self._asked += 1
        if self._slow_s:
            self.ailed += 1
            time.sleep(self._slow_s)
        elif int(self._asked * self._share) > int((self._asked - 1) * self._share):
            self.ailed += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("503 Slow Down", [("Content-Length", str(len(UNAVAILABLE)))])
            return [UNAVAILABLE]
        return self._inner(environ, start)


def ailing_store(slow_s: float = 0.0, share: float = 0.0) -> Step:
    """Checkpoints go there; each request is slow, or this share of them gets a 503."""

    def before(run: Run) -> None:
        try:
            from moto.moto_server.werkzeug_app import (
                DomainDispatcherApplication,
                create_backend_app,
            )
            from werkzeug.serving import make_server
        except ImportError as reason:
            raise NotRun(f"no object store: {reason}") from None

        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
        application = Ailing(DomainDispatcherApplication(create_backend_app), slow_s, share)
        server = make_server("127.0.0.1", 0, application, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run.stack.callback(server.shutdown)
        run.more |= {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
        run.store = application
        client = _client(run)
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key=f"jobs/{FOREIGN}", Body=b"notes")
        application.is_ailing = True

    return before


def follow_to_its_end(run: Run) -> None:
    """Whether requests ailed, and the foreign object is as it was afterwards."""
    run.await_steps()
    end_s = time.monotonic() + run.job.limit_s
    while not run.is_over() and time.monotonic() < end_s:
        time.sleep(0.1)
    run.store.is_ailing = False
    if not run.store.ailed:
        raise NotRun("the store was not asked for anything")
    left = _client(run).list_objects_v2(Bucket=BUCKET).get("Contents", [])
    if f"jobs/{FOREIGN}" not in {item["Key"] for item in left}:
        run.seen.append(f"removed: {FOREIGN} in the object store")


def _client(run: Run) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=run.more["AWS_ENDPOINT_URL"],
        region_name=KEYS["AWS_DEFAULT_REGION"],
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
