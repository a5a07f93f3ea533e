"""A class of Apache Kafka's in virtual time, as a child process that takes and gives lines of JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.peers.jars import GROUP_JUDGE, KAFKAS, REFERENCE_VERSION, SHARE_JUDGE


class Judge:
    """Does one operation after the other. A context manager, which ends the process."""

    def __init__(self, main: str, class_path: str) -> None:
        self._command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path, main]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, **operation: Any) -> dict[str, Any]:
        """The outcome of an operation."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(operation) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def judge_of_groups() -> Judge:
    """GroupMetadataManager. Answers have records as pairs of hexadecimal texts, an error by its name and message."""
    home = GROUP_JUDGE.home()
    return Judge("org.apache.kafka.coordinator.group.GroupJudge", f"{home}:{home}/*")


def judge_of_share_partitions() -> Judge:
    """SharePartition. Answers have the state after the operation, too."""
    return Judge("kafka.server.share.ShareJudge", f"{SHARE_JUDGE.home()}:{KAFKAS[REFERENCE_VERSION].home()}/*")


def judge_of_share_groups(folder: Path) -> Judge:
    """The group coordinator with share groups, of the reference release; its program is compiled into ``folder``."""
    jars = f"{KAFKAS[REFERENCE_VERSION].home()}/*"
    program = Path(__file__).with_name("groups") / "ShareGroupJudge.java"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(program)], check=True, capture_output=True)
    return Judge("org.apache.kafka.coordinator.group.ShareGroupJudge", f"{folder}:{jars}")
