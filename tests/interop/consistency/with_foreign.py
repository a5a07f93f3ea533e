"""Copying with clients of other languages, Transactions V2, partitions assigned: Java's and franz-go, in
`tests/peers/clients/Copier.java` and `go/copier.go` there: programs that are told what to do, a line at a time."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.interop.consistency.copying_client import COPY, GROUP, SOURCE, Abortable, GiveUp, Role, Taken, Wrote
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.foreign import GO_CLIENTS
from tests.peers.reaper import watch
from tests.waiting import HANG_S

SOURCE_FILE: Final = Path(__file__).resolve().parents[2] / "peers" / "clients" / "Copier.java"
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class _ForeignCopier:
    """See :class:`~tests.interop.consistency.copying_client.CopyingClient`."""

    def __init__(self, role: Role, wrote: Wrote, command: Sequence[str]) -> None:
        self._partition = _assigned(role)
        self._wrote = wrote
        self._written: list[str] = []
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        watch(self._process.pid)

    def start(self) -> None:
        """Fence, then to what is committed. Raises RuntimeError if there is no such program."""
        try:
            self._ask("start")
        except GiveUp as failure:
            if self._process.poll():
                raise RuntimeError(self._said()) from failure
            raise
        self.rewind()

    def take(self, most: int) -> Sequence[Taken]:
        """The records that are there."""
        parts = [part.split("=", 1) for part in self._ask(f"take {most}").split()]
        return [Taken(self._partition, int(offset), value) for offset, value in parts]

    def rewind(self) -> None:
        """A seek."""
        self._ask("rewind")

    def committed(self) -> Mapping[int, int]:
        """Of the partition that is copied."""
        return {self._partition: int(self._ask("committed"))}

    def begin(self) -> None:
        """Local."""
        self._written.clear()
        self._ask("begin")

    def write(self, partition: int, value: str) -> None:
        """Into the queue."""
        self._written.append(value)
        self._ask(f"write {partition} {value}")

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """With the consumer's metadata."""
        self._ask(" ".join(["offsets", *(f"{partition}={offset}" for partition, offset in following.items())]))

    def flush(self) -> None:
        """Answered with every record's place."""
        offsets = self._ask("flush").split()
        for value, offset in zip(self._written, offsets, strict=True):
            self._wrote(value, int(offset))
        self._written.clear()

    def commit(self) -> None:
        """Again after a time-out."""
        self._ask("commit")

    def abort(self) -> None:
        """Again after a time-out."""
        self._ask("abort")

    def close(self) -> None:
        """Its process ends."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _ask(self, order: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # then there is no answer either
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait(HANG_S)
            raise GiveUp(f"its process has ended: {self._said()}")
        kind, _, rest = answer.rstrip("\n").partition(" ")
        if kind == "ok":
            return rest
        raise Abortable(rest) if kind == "abortable" else GiveUp(rest)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]


class JavaCopier(_ForeignCopier):
    """Apache Kafka's own client."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        settings = {"bootstrap.servers": role.bootstrap, **_security(role.security)}
        keys = [f"{key}={value}" for key, value in settings.items()]
        tools = KafkaTools(role.bootstrap)
        super().__init__(role, wrote, tools.command(str(SOURCE_FILE), *_arguments(role), *keys))


class FranzGoCopier(_ForeignCopier):
    """franz-go, without TLS and logins."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        if role.security:
            raise ValueError("copier.go does not log in")
        program = GO_CLIENTS.home() / "go-clients"
        super().__init__(role, wrote, [str(program), role.bootstrap, "copier", *_arguments(role)])


def _assigned(role: Role) -> int:
    if role.partition is None:
        raise ValueError("copiers of other languages are no group members: assigned partitions only")
    return role.partition


def _arguments(role: Role) -> list[str]:
    timeout_ms = str(role.transaction_timeout_ms)
    return [SOURCE, COPY, GROUP, str(_assigned(role)), role.transactional_id, timeout_ms]


def _security(settings: Mapping[str, str]) -> dict[str, str]:
    if not settings:
        return {}
    user, password = settings["sasl.username"], settings["sasl.password"]
    return {
        "security.protocol": settings["security.protocol"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": settings["ssl.ca.location"],
        "sasl.mechanism": settings["sasl.mechanism"],
        "sasl.jaas.config": f'{_LOGIN} required username="{user}" password="{password}";',
    }
