"""An S3 server on loopback (moto's), for tests of storage behind a URL."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

BUCKET = "checkpoints"


@dataclass(frozen=True)
class ObjectStore:
    """A running server with one bucket."""

    endpoint: str

    @property
    def url(self) -> str:
        """Of the bucket."""
        return f"s3://{BUCKET}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to reach it; the keys open nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "tester",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """Another program's view of the bucket, with no code of ours in between."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="tester",
            aws_secret_access_key="tester",
        )


@contextmanager
def running() -> Iterator[ObjectStore]:
    """A server for as long as the block lasts."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"http://{host}:{port}")
        store.client().create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.stop()
