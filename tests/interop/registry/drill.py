"""``python -m tests.interop.registry.drill``: instances of a registry are killed and frozen while clients register.

Every answer that a client got has to hold at the end, in every instance: an id has one schema for ever, no id is given
to two schemas, and no registration is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from oncelog.base.python_process import python_module
from oncelog.testing import Broker
from tests.peers.process import Process, free_ports
from tests.waiting import wait_until

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


def request(port: int, method: str, path: str, body: object = None, timeout_s: float = 60.0) -> tuple[int, object]:
    """Status and document of an answer. Raises OSError if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        encoded = None if body is None else json.dumps(body)
        connection.request(method, path, encoded, {"Content-Type": CONTENT_TYPE})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()


class Instance:
    """One process of ``oncelog registry serve``; started again on the same port after it was killed."""

    def __init__(self, bootstrap: str, directory: Path, number: int) -> None:
        self.port = free_ports(1)[0]
        self._log = directory / f"registry-{number}.log"
        self._command = [
            *python_module("oncelog", "registry", "serve"),
            *("--bootstrap-server", bootstrap, "--listen", f"127.0.0.1:{self.port}"),
        ]
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.thaw()
            self._process.kill()

    def start(self) -> None:
        self._process = Process(self._command, self._log)
        wait_until(self.is_up, lambda: f"the registry serves; its log: {self._log.read_text()[-2000:]}")

    def is_up(self) -> bool:
        try:
            return request(self.port, "GET", "/health", timeout_s=5)[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        assert self._process is not None
        self._process.thaw()


class Clients:
    """Threads that register schemas of their own and of each other, at any instance, and remember the answers."""

    def __init__(self, instances: list[Instance], seed: int) -> None:
        self._instances = instances
        self._seed = seed
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._register, args=(number,)) for number in range(4)]
        self.answers: list[tuple[str, str, int]] = []
        """Subject, text and id of each registration that was answered."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _register(self, number: int) -> None:
        choice = random.Random(self._seed * 100 + number)
        while not self._ends.is_set():
            subject, text = (
                f"s{choice.randrange(20)}",
                json.dumps({"type": "fixed", "name": "F", "size": choice.randrange(400)}),
            )
            port = choice.choice(self._instances).port
            with contextlib.suppress(OSError):
                body = {"schema": text}
                status, answer = request(port, "POST", f"/subjects/{subject}/versions", body, timeout_s=5)
                if status == 200 and isinstance(answer, dict):
                    self.answers.append((subject, text, answer["id"]))


def trouble(instances: list[Instance], instance: Instance, choice: random.Random) -> None:
    """Something happens to one instance, and it serves again afterwards."""
    if choice.random() < 0.5:
        instance.kill()
        instance.start()
    else:
        instance.freeze()
        time.sleep(choice.uniform(0.1, 1.0))
        instance.thaw()


def violations(instances: list[Instance], answers: list[tuple[str, str, int]]) -> list[str]:
    """Answers that do not hold."""
    problems: list[str] = []
    texts: dict[int, str] = {}
    for subject, text, schema_id in answers:
        if texts.setdefault(schema_id, text) != text:
            problems.append(f"id {schema_id} was given to {texts[schema_id]} and to {text} of {subject}")
    for instance in instances:
        for subject, text, schema_id in dict.fromkeys(answers):
            status, answer = request(instance.port, "POST", f"/subjects/{subject}", {"schema": text})
            if status != 200 or not isinstance(answer, dict) or answer["id"] != schema_id:
                problems.append(f"{subject} had {text} under id {schema_id}, now: {status} {answer}")
    return problems


def run(bootstrap: str, seed: int, rounds: int) -> tuple[int, list[str]]:
    """The number of answers, and those that do not hold."""
    choice = random.Random(seed)
    with TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        instances = [stack.enter_context(Instance(bootstrap, Path(directory), number)) for number in range(2)]
        request(instances[0].port, "PUT", "/config", {"compatibility": "NONE"})
        with Clients(instances, seed) as clients:
            for _ in range(rounds):
                trouble(instances, choice.choice(instances), choice)
                count = len(clients.answers)
                wait_until(lambda count=count: len(clients.answers) > count + 20, "further registrations are answered")  # type: ignore[misc]
        wait_until(lambda: all(instance.is_up() for instance in instances), "all instances serve")
        return len(clients.answers), violations(instances, clients.answers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap-server", help="default: a broker of oncelog in this process")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap_server or stack.enter_context(Broker()).bootstrap_servers
        count, problems = run(bootstrap, options.seed, options.rounds)
    print(f"{count} registrations were answered, {len(problems)} of them do not hold (seed {options.seed})")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
