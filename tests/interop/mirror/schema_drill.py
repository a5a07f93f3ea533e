"""``python -m tests.interop.mirror.schema_drill``: a mirror with `--schemas` and registries on both sides are killed.

A client registers schemas at the source and sends a record of each; another registers its own at the target. Whenever
records are visible in the copy, their schemas have to be in the target's topic before them. In the end every
registration that was answered holds: at the source, in the copy under the same id and version, and at the target.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.blocking.producer import Producer
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from tests.interop.mirror.drill import COPY, TOPIC, Mirrors
from tests.interop.registry.drill import Instance, request
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import wait_until

_CONFIG: Final = ClientConfig(retry_backoff_ms=20, retry_backoff_max_ms=200, retry_timeout_ms=60_000)
_COPIED_SUBJECT: Final = ":.a:a.orders-value"
_EACH_ROUND: Final = 15


class Answer(NamedTuple):
    """A registration that was answered."""

    text: str
    schema_id: int


class Registrar(threading.Thread):
    """Registers a new schema in ``subject`` again and again, and calls ``then`` with each id."""

    def __init__(self, port: int, subject: str, then: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self._port, self._subject, self._then = port, subject, then
        self._ending = threading.Event()
        self.answers: list[Answer] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._ending.wait(0.02):
            document = {"type": "fixed", "name": self._subject.partition("-")[0], "size": number + 1}
            text = json.dumps(document, separators=(",", ":"))  # as a registry keeps it
            with contextlib.suppress(OSError, ClientError):
                body = {"schema": text}
                status, answer = request(self._port, "POST", f"/subjects/{self._subject}/versions", body, timeout_s=5)
                if status == 200 and isinstance(answer, dict):
                    number += 1
                    self.answers.append(Answer(text, answer["id"]))
                    self._then(answer["id"])


def _records(broker: OncelogServe, topic: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of all records that a reader sees."""
    with Client(broker.bootstrap_servers, config=_CONFIG) as client:
        at = TopicPartition(TopicName(topic), 0)
        if at.topic not in client.metadata(None):
            return []
        end = client.list_offsets({at: -1}, read_committed=True)[at].offset
        if not end:
            return []
        fetched = client.fetch({at: 0}, until={at: end}, settings=FetchSettings(read_committed=True))
        records = [record for part in fetched for record in read_fetched(part, read_committed=True)]
        return [(record.key or b"", record.value or b"") for record in records]


def _copied_ids(target: OncelogServe) -> list[int]:
    return [int.from_bytes(value[1:5]) for _, value in _records(target, COPY)]


def _copied_schemas(target: OncelogServe) -> dict[int, tuple[int, str]]:
    """Version and text of each schema of the copy, by its id."""
    documents: list[Any] = [json.loads(value) for _, value in _records(target, "_schemas") if value]
    copied = [document for document in documents if document.get("subject") == _COPIED_SUBJECT and "id" in document]
    return {document["id"]: (document["version"], document["schema"]) for document in copied}


class Sides(NamedTuple):
    """Processes that may be killed."""

    source: OncelogServe
    target: OncelogServe
    registries: list[Instance]
    mirrors: Mirrors

    def strike(self, choice: random.Random) -> str:
        """End something without a warning, and start it again."""
        kind = choice.choice(["mirror", "mirror", "source", "target", "registry"])
        if kind == "registry":
            registry = choice.choice(self.registries)
            registry.kill()
            registry.start()
        elif kind == "mirror":
            self.mirrors.kill(choice.randrange(2))
        else:
            broker = self.source if kind == "source" else self.target
            broker.kill()
            broker.start()
        self.mirrors.start()
        return kind


def run(seed: int, rounds: int, directory: Path) -> tuple[int, list[str]]:
    """The number of registrations at the source, and everything that does not hold."""
    choice = random.Random(seed)
    properties = {"log.sync.policy": "none"}
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(OncelogServe(directory / name, properties=properties)) for name in ("source", "target")
        )
        registries = [
            stack.enter_context(Instance(broker.bootstrap_servers, directory, number))
            for number, broker in enumerate((source, target))
        ]
        for registry in registries:
            request(registry.port, "PUT", "/config", {"compatibility": "NONE"})
        client = stack.enter_context(Client(source.bootstrap_servers, config=_CONFIG))
        create_topic(client, NewTopic(TOPIC, 1))
        mirrors = Mirrors(2, _options(source, target), directory)
        sides = Sides(source, target, registries, mirrors)
        producer = stack.enter_context(Producer(client))
        sent: list[int] = []

        def send(schema_id: int) -> None:
            producer.send(TOPIC, b"\0" + schema_id.to_bytes(4) + b"x", partition=0)
            producer.flush()
            sent.append(schema_id)

        copied = Registrar(registries[0].port, "orders-value", send)
        own = Registrar(registries[1].port, "own-value", lambda _: None)
        problems = []
        try:
            mirrors.start()
            with copied, own:
                for _ in range(rounds):
                    _wait_for_copies(target)
                    sides.strike(choice)
                    problems += _visible_without_schema(target)
            wait_until(lambda: set(sent) <= set(_copied_ids(target)), "the last records at the target", poll_s=0.2)
        finally:
            exits = mirrors.end()
        problems += [f"a mirror ended with {code}" for code in exits if code]
        problems += _visible_without_schema(target)
        return len(copied.answers), problems + _broken(copied, own, registries, target)


def _wait_for_copies(target: OncelogServe) -> None:
    """A fault that meets nothing at work proves nothing."""
    count = len(_copied_ids(target))
    wait_until(lambda: len(_copied_ids(target)) >= count + _EACH_ROUND, "copies of further records", poll_s=0.1)


def _options(source: OncelogServe, target: OncelogServe) -> list[str]:
    at = ["--source", f"a={source.bootstrap_servers}", "--target", target.bootstrap_servers, "--schemas"]
    return [*at, "--topics", TOPIC, "--commit-interval-ms", "50", "--refresh-interval-ms", "300", "--json"]


def _visible_without_schema(target: OncelogServe) -> list[str]:
    ids = _copied_ids(target)
    present = _copied_schemas(target)  # read later: a schema has to be there before its records
    return [f"a record of id {number} is visible without its schema" for number in ids if number not in present]


def _broken(copied: Registrar, own: Registrar, registries: list[Instance], target: OncelogServe) -> list[str]:
    problems = []
    copies = _copied_schemas(target)
    for version, answer in enumerate(copied.answers, 1):
        if copies.get(answer.schema_id) != (version, answer.text):
            problems.append(f"{answer} is {copies.get(answer.schema_id)} in the copy, not version {version}")
    for registrar, port, subject in (
        (copied, registries[0].port, "orders-value"),
        (copied, registries[1].port, _COPIED_SUBJECT),
        (own, registries[1].port, "own-value"),
    ):
        for answer in registrar.answers:
            status, document = request(port, "POST", f"/subjects/{subject}?deleted=true", {"schema": answer.text})
            if not isinstance(document, dict) or document.get("id") != answer.schema_id:
                problems.append(f"{subject} had {answer}, now: {status} {document}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        count, problems = run(options.seed, options.rounds, Path(directory))
    print(f"{count} schemas were registered, {len(problems)} problems (seed {options.seed})")
    print("\n".join(problems[:20]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
