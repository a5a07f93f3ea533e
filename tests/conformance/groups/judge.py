"""Apache Kafka's own GroupMetadataManager in virtual time, as a child process that takes and gives lines of JSON."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.peers.jars import GROUP_JUDGE

MAIN = "org.apache.kafka.coordinator.group.GroupJudge"


class Judge:
    """A coordinator that answers one operation after the other. A context manager, which ends the process."""

    def __init__(self, class_path: str | None = None, main: str = MAIN) -> None:
        self._class_path = class_path
        self._main = main

    def __enter__(self) -> Self:
        home = GROUP_JUDGE.home() if self._class_path is None else None
        class_path = self._class_path or f"{home}:{home}/*"
        self._process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path, self._main],
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
        """The answer to an operation: records as pairs of hexadecimal texts, an error by its name and message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(operation) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
