"""Apache Kafka's own SharePartition in virtual time, as a child process that takes and gives lines of JSON."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.peers.jars import KAFKAS, REFERENCE_VERSION, SHARE_JUDGE

MAIN = "kafka.server.share.ShareJudge"


class Judge:
    """A share partition that does one operation after the other. A context manager, which ends the process."""

    def __enter__(self) -> Self:
        jars = KAFKAS[REFERENCE_VERSION].home()
        self._process = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", "-cp", f"{SHARE_JUDGE.home()}:{jars}/*", MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, **operation: Any) -> dict[str, Any]:
        """The outcome of an operation, and the state after it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(operation) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
