"""One connection that speaks with our message classes: send a request in a version, decode the answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from oncelog.handlers.registry import BY_KEY
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.header import RequestHeader, decode_response_header, encode_request
from oncelog.wire.message import Message
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.waiting import HANG_S

Sweep = Callable[["Wire"], None]
CLIENT_ID: Final = "sweep"
UNRECORDED: Final = "unrecorded"
"""The client id of a connection that only waits for the broker: a recording leaves it out."""
NOWHERE: Final = b"\x01" * 16
"""A topic id that no topic has."""


def versions(kind: type[Message]) -> Iterator[int]:
    """Every version of the request that the registry lists."""
    api = BY_KEY[kind.API_KEY]
    return iter(range(api.min_version, api.max_version + 1))


class Wire:
    """A blocking connection; reopened when the broker closes it. ``timeout_s`` is for one call of the system."""

    def __init__(self, bootstrap: str, timeout_s: float = HANG_S, client_id: str = CLIENT_ID) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._connection: socket.socket | None = None
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def another(self, client_id: str = CLIENT_ID) -> Wire:
        """One more connection to the same broker."""
        return Wire(self._bootstrap, self._timeout_s, client_id)

    def call(self, message: Any, version: int) -> Any:
        """The decoded answer; None when the broker closed the connection instead."""
        self.send(message, version)
        return self.receive(message, version)

    def send(self, message: Any, version: int) -> None:
        """Send without waiting for an answer."""
        self._correlation_id += 1
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self._client_id)
        self.send_bytes(b"".join(bytes(chunk) for chunk in encode_request(header, message)))

    def send_bytes(self, frame: bytes) -> None:
        """Send bytes as they are. A connection that the broker has closed meanwhile is for who receives to find."""
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=self._timeout_s)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            self._connection.sendall(frame)

    def receive(self, message: Any, version: int) -> Any:
        """The answer to a request that was sent."""
        frame = self.receive_frame()
        if frame is None:
            return None
        _, position = decode_response_header(frame, message.API_KEY, version)
        return message.response_class().decode(frame[position:], version)

    def receive_frame(self) -> bytes | None:
        """The next frame, None when the broker closes the connection."""
        size = self._exactly(4)
        frame = size and self._exactly(int.from_bytes(size, "big"))
        if not frame:
            self._close()
            return None
        return frame

    def topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; its id."""
        entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
        self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while (result := self.call(request, 12).topics[0]).error_code:
            pass
        topic_id: bytes = result.topic_id
        return topic_id

    def produce(self, topic: str, *values: bytes, partition: int = 0, timestamp: int = 1000) -> Any:
        """Append one batch."""
        return self.call(
            ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        partition_data=[
                            PartitionProduceData(index=partition, records=batch(*values, timestamp=timestamp))
                        ],
                    )
                ],
            ),
            9,
        )

    def _exactly(self, size: int) -> bytes:
        received = b""
        while self._connection is not None and len(received) < size:
            try:
                more = self._connection.recv(size - len(received))
            except ConnectionError:
                more = b""
            if not more:
                return b""
            received += more
        return received

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def batch(*values: bytes | None, timestamp: int = 1000, key: bytes | None = b"k", **fields: Any) -> bytes:
    """A record batch as a producer sends it."""
    records = [Record(offset, timestamp + offset, key, value, ()) for offset, value in enumerate(values)]
    return bytes(build_batch(records, **fields))
