"""A member of a consumer group as a process of its own, which a drill may end with SIGKILL.

The process takes its steps by itself. What the drill has to know in time (partitions gained, before their offsets are
fetched; records taken, before they are committed; offsets that were acknowledged) it says in a line of JSON, and goes
on when that is answered. What is acknowledged to it and not said any more, because it was killed, does not count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Final

from tests.cluster.group_members import GROUPS_BY_NAME, Process, Role, Taken
from tests.cluster.transactional_members import OUTPUT, TRANSACTIONAL, GivenUp, timeout_ms
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.foreign import GO_CLIENTS
from tests.peers.reaper import watch

JAVA_MEMBER: Final = Path(__file__).parents[1] / "peers" / "clients" / "Member.java"
GIVEN_UP: Final = 3
"""The exit code of a member whose transactional producer is of no use any more."""
_GO_ON: Final = "go on\n"
_CLOSE: Final = "close\n"


class Killed(Exception):
    """The member's process was killed by the drill, or has given up."""


class ProcessMember:
    """The drill's side: a client that hands on what the process says."""

    def __init__(self, kind: str, role: Role) -> None:
        self._role = role
        self._processed: Process = lambda _taken: None
        self._is_killed = False
        self._child = subprocess.Popen(
            _command(kind, role),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        watch(self._child.pid)

    def step(self, process: Process) -> Mapping[int, int]:
        """Follow the process to the end of its step. Raises Killed."""
        self._processed = process
        return self._follow(_GO_ON)

    def kill(self) -> None:
        """SIGKILL: from any thread; the step that is under way ends with Killed."""
        self._is_killed = True
        self._child.kill()

    def freeze(self) -> None:
        """SIGSTOP, until ``thaw``."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Have it leave, unless it was killed; it may have more to say until its end."""
        try:
            while True:
                self._follow(_CLOSE)
        except (Killed, RuntimeError):
            with suppress(BrokenPipeError):
                self._child.communicate()

    def _follow(self, answer: str) -> Mapping[int, int]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        while line := self._child.stdout.readline():
            decoded: dict[str, Any] = json.loads(line)
            if "assigned" in decoded:
                self._role.assigned(decoded["assigned"])
            elif "taken" in decoded:
                self._processed([Taken(*item) for item in decoded["taken"]])
            is_over = "committed" in decoded
            try:
                self._child.stdin.write(answer if is_over else _GO_ON)
                self._child.stdin.flush()
            except BrokenPipeError:
                break
            if is_over:
                return {int(partition): offset for partition, offset in decoded["committed"].items()}
        if self._is_killed or (code := self._child.wait()) == GIVEN_UP:
            raise Killed
        raise RuntimeError(f"the process of a member of {self._role.group} ended by itself: {code}")


def _command(kind: str, role: Role) -> list[str]:
    """The program of a member; ``kind`` is one of Python's, or ``go PROTOCOL``, or ``java VERSION PROTOCOL``."""
    transaction = () if role.transactional_id is None else (OUTPUT, role.transactional_id, str(timeout_ms(role)))
    match kind.split():
        case ["go", protocol]:
            arguments = (role.topic, role.group, protocol, str(role.session_ms), *transaction)
            return [str(GO_CLIENTS.home() / "go-clients"), role.bootstrap, "member", *arguments]
        case ["java", version, protocol]:
            arguments = (role.bootstrap, role.topic, role.group, protocol, str(role.session_ms), *transaction)
            return KafkaTools(role.bootstrap, version).command(str(JAVA_MEMBER), *arguments)
    known = {field.name: getattr(role, field.name) for field in fields(role) if field.name != "assigned"}
    return [sys.executable, "-m", __name__, kind, json.dumps(known)]


class _Drill:
    """The process's side of the conversation; from any of its threads."""

    def __init__(self, questions: IO[str], answers: IO[str]) -> None:
        self._questions = questions
        self._answers = answers
        self._lock = threading.Lock()

    def tell(self, **said: Any) -> str:
        """Say something and wait for the answer; without the drill this process ends."""
        with self._lock:
            try:
                self._questions.write(json.dumps(said) + "\n")
                self._questions.flush()
                answer = self._answers.readline()
            except OSError:
                answer = ""
            if not answer:
                os._exit(1)
            return answer

    def assigned(self, partitions: Iterable[int]) -> None:
        """See `Role.assigned`."""
        self.tell(assigned=list(partitions))

    def process(self, taken: Sequence[Taken]) -> None:
        """See `Process`."""
        self.tell(taken=list(taken))


def main() -> None:
    """Take steps until told to close."""
    questions = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a client prints is none of the conversation
    drill = _Drill(questions, sys.stdin)
    role = Role(**json.loads(sys.argv[2]), assigned=drill.assigned)
    make = GROUPS_BY_NAME[sys.argv[1]].make
    try:
        client = make(role) if role.transactional_id is None else TRANSACTIONAL[make](role)
        while drill.tell(committed=dict(client.step(drill.process))) != _CLOSE:
            pass
        client.close()
    except GivenUp as failure:
        print(f"{sys.argv[1]}: {failure}", file=sys.stderr, flush=True)
        os._exit(GIVEN_UP)


if __name__ == "__main__":
    main()
