"""Record what Apache Kafka 3.9.1 answers old clients: `python -m tests.conformance.old_clients.record`."""

from __future__ import annotations

import json
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

from oncelog.wire.header import RequestHeader, decode_response_header, encode_request
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.old_clients.answers import CLOSED, asks_again, described
from tests.conformance.old_clients.questions import TOPICS, Question, ask_all, create_topics
from tests.peers.old_kafka import OldKafka
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import HANG_S, wait_until

GOLDEN: Final = Path(__file__).with_name("golden.json")


class Client:
    """A connection, made anew when the broker has closed it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def ask(self, question: Question) -> Any:
        """The response; None where the connection was closed."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=HANG_S)
        request, version = question.request, question.version
        header = RequestHeader(request.API_KEY, version, 7, "old")
        self._socket.sendall(b"".join(map(bytes, encode_request(header, request))))
        try:
            frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        except ConnectionError:
            self._socket = None
            return None
        _, position = decode_response_header(frame, request.API_KEY, version)
        return request.response_class().decode(memoryview(frame)[position:], version)

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data


def first_offset_of(question: Question) -> int:
    """The offset from which a Fetch asks."""
    topics = getattr(question.request, "topics", None) or []
    return max(
        (getattr(partition, "fetch_offset", 0) for topic in topics[:1] for partition in _partitions(topic)), default=0
    )


def _partitions(topic: Any) -> list[Any]:
    return getattr(topic, "partitions", [])


def main() -> None:
    """Write the golden file."""
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory, ZooKeeper(Path(directory)) as zookeeper:
        properties = {"transaction.partition.verification.enable": "false", "num.partitions": "1"}
        with OldKafka("3.9.1", zookeeper.connect, Path(directory, "kafka"), properties=properties) as kafka:
            client = Client((kafka.host, kafka.port))

            def ask(question: Question) -> Any:
                response = client.ask(question)
                if question.again:
                    kept = [response]
                    wait_until(lambda: not asks_again(kept[-1]) or kept.append(client.ask(question)), question.name)
                    response = kept[-1]
                answers[question.name] = CLOSED if response is None else described(response, first_offset_of(question))
                return response

            created = client.ask(create_topics())
            assert {topic.error_code for topic in created.topics} == {0}, created
            topics = [MetadataRequestTopic(name=name) for name in TOPICS]
            ready = Question("ready", MetadataRequest(topics=topics), 1)
            wait_until(lambda: not any(map(asks_again, client.ask(ready).topics)), "leaders")
            ask_all(ask)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    GOLDEN.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
