"""The time that librdkafka takes by itself: a peer that stores nothing, decides nothing and answers at once.

It speaks just enough for a transactional producer, and for making topics: one thread, one system call to receive and
one to send. The three requests of a transaction are answered from bytes made before: from then on a request costs it a
look-up. What a benchmark reaches against it no broker can exceed with this client. Not a broker: nothing is kept.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.peers.oncelog_serve import OncelogServe

from oncelog.handlers.registry import BY_KEY
from oncelog.wire.chunks import Chunk
from oncelog.wire.header import RequestHeader, decode_request_header, encode_response
from oncelog.wire.message import Message
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.messages.end_txn import EndTxnResponse
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdResponse
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

NODE_ID: Final = 1
_PRODUCE, _ADD_PARTITIONS, _END_TXN = 0, 24, 26
_REPEATED: Final = (_PRODUCE, _ADD_PARTITIONS, _END_TXN)
_CORRELATION_ID: Final = slice(8, 12)
"""In a request, its size included."""
_TAIL_BYTES: Final = 3
"""The bytes behind the records of a Produce request with one partition: no tagged fields, three times."""


class Answers:
    """Requests → responses, remembered for the requests of transactions."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._topics: dict[str, int] = {}
        self._made: dict[bytes, bytes] = {}
        self._produce_bytes = 0
        """Of a Produce request, as far as its answer depends on it: what precedes the records."""
        self._handlers: Mapping[int, Callable[[Any], Message]] = {
            _PRODUCE: self._produce,
            3: self._metadata,
            10: self._find_coordinator,
            18: self._api_versions,
            19: self._create_topics,
            20: self._delete_topics,
            22: lambda _: InitProducerIdResponse(producer_id=1000, producer_epoch=0),
            _ADD_PARTITIONS: self._add_partitions,
            _END_TXN: lambda _: EndTxnResponse(),
        }

    def answer(self, frame: bytes) -> bytes:
        """The response to one request, both with their size."""
        api_key = frame[5]
        if api_key in _REPEATED:
            known = frame[12 : self._produce_bytes] if api_key == _PRODUCE else frame[12:]
            made = self._made.get(frame[4:8] + known)
            if made is not None:
                return made[:4] + frame[_CORRELATION_ID] + made[8:]
        header, position = decode_request_header(memoryview(frame)[4:])
        request_type = getattr(
            import_module(f"oncelog.wire.messages.{BY_KEY[header.api_key].module}"),
            f"{BY_KEY[header.api_key].name}Request",
        )
        request = request_type.decode(memoryview(frame)[4 + position :], header.api_version)
        made = _joined(
            encode_response(header.correlation_id, header.api_key, header.api_version, self._respond(header, request))
        )
        if isinstance(request, ProduceRequest):
            (topic,) = request.topic_data
            (partition,) = topic.partition_data
            records = partition.records
            size = len(records) if isinstance(records, (bytes, bytearray, memoryview)) else 0
            self._produce_bytes = len(frame) - _TAIL_BYTES - size
            self._made[frame[4:8] + frame[12 : self._produce_bytes]] = made
        elif header.api_key in _REPEATED:
            self._made[frame[4:8] + frame[12:]] = made
        return made

    def _respond(self, header: RequestHeader, request: Any) -> Message:
        return self._handlers[header.api_key](request)

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=item.index, base_offset=0, log_append_time_ms=-1)
                        for item in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self._topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host=self._host, port=self._port)],
            cluster_id="floor",
            controller_id=NODE_ID,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=NODE_ID, leader_epoch=0, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
            )
            for index in range(self._topics.get(name, 0))
        ]
        return MetadataResponseTopic(error_code=0 if partitions else 3, name=name, partitions=partitions)

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        place = {"node_id": NODE_ID, "host": self._host, "port": self._port}
        return FindCoordinatorResponse(
            **place,  # type: ignore[arg-type]  # three names, two types
            coordinators=[Coordinator(key=key, **place) for key in request.coordinator_keys],  # type: ignore[arg-type]
        )

    def _api_versions(self, _request: Message) -> ApiVersionsResponse:
        apis = [BY_KEY[key] for key in self._handlers]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version) for api in apis
            ]
        )

    def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self._topics |= {topic.name: topic.num_partitions for topic in request.topics}
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in request.topics])

    def _delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        names = [*request.topic_names, *(topic.name for topic in request.topics)]
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])


def _joined(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview)))


def serve(host: str, port: int) -> None:
    """Answer for ever."""
    listening = socket.create_server((host, port))
    answers = Answers(host, port)
    peers: dict[int, socket.socket] = {}
    pending: dict[int, bytes] = {}
    ready = select.epoll()
    ready.register(listening, select.EPOLLIN)
    while True:
        for descriptor, _ in ready.poll():
            if descriptor == listening.fileno():
                peer, _address = listening.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = peer
                ready.register(peer, select.EPOLLIN)
                continue
            peer = peers[descriptor]
            received = _received(peer)
            if not received:
                ready.unregister(descriptor)
                del peers[descriptor]
                pending.pop(descriptor, None)
                peer.close()
                continue
            data = pending.pop(descriptor, b"") + received
            replies = []
            while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
                replies.append(answers.answer(data[:size]))
                data = data[size:]
            if data:
                pending[descriptor] = data
            if replies:
                peer.sendall(b"".join(replies))


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20)
    except ConnectionError:
        return b""


class FloorServe(OncelogServe):
    """That peer as a process of its own, with the handle of a broker."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, command=(sys.executable, "-m", "bench.floor"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--listen", required=True)
    parser.add_argument("--data-dir", help="unused: there is none")
    host_, port_ = parser.parse_args().listen.split(":")
    serve(host_, int(port_))
