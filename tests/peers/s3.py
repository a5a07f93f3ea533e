"""An object store with the S3 interface (moto) as a process of its own, behind a proxy that loses answers when told to.

Conditional puts (``If-None-Match: *``) are what tables on S3 stand on. moto honours them but looks and writes in two
steps, so the proxy lets one such request through at a time: of two writers of one key, one gets 412. It is a process of
its own because delta-rs keeps Python's lock while it changes a table's properties.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.peers.lossy_proxy import CONTROL

KEYS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True)
class Lossy:
    """A server behind ``lossy_proxy``."""

    endpoint: str

    def lose(self, method: str, path: str, what: Literal["answer", "request"] = "answer", times: int = 1) -> None:
        """Let the answer to the next requests of that kind be lost, or the requests themselves."""
        self._control({"method": method, "path": path, "what": what, "times": times})

    def lost(self) -> int:
        """How many requests or answers were lost so far."""
        return int(self._control(None)["lost"])

    def conditional_puts(self) -> list[tuple[str, int]]:
        """Path and status of each request that was to make a thing and not to replace it."""
        return [(path, status) for path, status in self._control(None)["conditional"]]

    def _control(self, fault: dict[str, Any] | None) -> Any:
        body = None if fault is None else json.dumps(fault).encode()
        with urllib.request.urlopen(f"{self.endpoint}{CONTROL}", body) as answer:
            return json.load(answer)


@dataclass(frozen=True)
class ObjectStore(Lossy):
    """The running store, as clients and tests see it."""

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables by which clients find it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}

    @property
    def delta_options(self) -> dict[str, str]:
        """The same as storage options of delta-rs."""
        return {
            "aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"],
            "aws_region": KEYS["AWS_REGION"],
            "aws_endpoint_url": self.endpoint,
        }

    @property
    def iceberg_options(self) -> dict[str, str]:
        """The same as properties of pyiceberg."""
        return {
            "s3.access-key-id": KEYS["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": KEYS["AWS_SECRET_ACCESS_KEY"],
            "s3.region": KEYS["AWS_REGION"],
            "s3.endpoint": self.endpoint,
        }

    def bucket(self, name: str) -> str:
        """A new bucket."""
        self._client().create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of a bucket."""
        result = self._client().list_objects_v2(Bucket=bucket, Prefix=prefix)
        return [item["Key"] for item in result.get("Contents", ())]

    def _client(self) -> Any:
        import boto3  # a quarter of a second, which all workers would spend where it is at the top

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store for the time of the block."""
    with running("tests.peers.s3_process") as endpoint:
        yield ObjectStore(endpoint)


@contextmanager
def running(module: str, *arguments: str) -> Iterator[str]:
    """A server's process for the time of the block; its address."""
    command = [sys.executable, "-m", module, *arguments]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert endpoint, f"{module} did not start"
        try:
            yield endpoint
        finally:
            process.stdin.close()  # it ends when nobody holds the other side
            process.wait()
