"""Topics with many aborted transactions between their records: what a read_committed consumer has to get through.

They are written by raw requests, or a hundred thousand of them would take minutes: a transactional batch each, of one
of ten producers, and then its abort marker as a coordinator would write it. (librdkafka 2.16 did not get through 30,000
of a producer each within seconds.) The coordinator is not asked, so both brokers run with
``transaction.partition.verification.enable=false``; what is in the log and in its transaction index is the same as
behind real transactions of one record.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Final

from bench.peers import Broker
from bench.report import Figures
from bench.transactions import fill_transactions, read
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, decode_response_header, encode_request
from oncelog.wire.message import Message
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}
_FIRST_PRODUCER_ID: Final = 1_000_000
_PRODUCE_VERSION, _MARKERS_VERSION = 8, 1
_OPEN_AT_ONCE: Final = 10
_IN_FLIGHT: Final = 50
"""Requests sent ahead of their answers; fewer than brokers stop reading at."""


def load(broker: Broker, plain: str, behind: str, count: int, aborted: int) -> None:
    """``count`` records in ten transactions into ``plain``; the same into ``behind``, then the aborted transactions,
    then another ``count``."""
    for topic in (plain, behind):
        fill_transactions(broker, topic, count, 10)
    _abort_many(broker, behind, aborted)
    fill_transactions(broker, behind, count, 1)


def figures(broker: Broker, plain: str, behind: str, count: int, aborted: int) -> Figures:
    """The rates of a read_committed and a read_uncommitted consumer on the loaded records."""
    uncommitted_s = read(broker, plain, count, "read_uncommitted")
    committed_s = read(broker, plain, count, "read_committed")
    behind_uncommitted_s = read(broker, behind, 2 * count + aborted, "read_uncommitted")
    behind_committed_s = read(broker, behind, 2 * count, "read_committed")
    return {
        "read_committed, records/s": count / committed_s,
        "read_uncommitted, records/s": count / uncommitted_s,
        "committed of uncommitted": uncommitted_s / committed_s,
        "the same with aborted ones between": behind_uncommitted_s / behind_committed_s,
    }


def _abort_many(broker: Broker, topic: str, count: int) -> None:
    """So many transactions of one record, all aborted; a few are open at a time."""
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        requests: list[int] = []
        for correlation_id, (message, version) in enumerate(_requests(topic, count)):
            header = RequestHeader(message.API_KEY, version, correlation_id, "bench")
            connection.sendall(join_chunks(encode_request(header, message)))
            requests.append(message.API_KEY)
            if len(requests) > _IN_FLIGHT:
                _check(answers.read(int.from_bytes(answers.read(4), "big")), requests.pop(0))
        for api_key in requests:
            _check(answers.read(int.from_bytes(answers.read(4), "big")), api_key)


def _requests(topic: str, count: int) -> Iterator[tuple[Message, int]]:
    value = os.urandom(100)
    for start in range(0, count, _OPEN_AT_ONCE):
        producers = range(_FIRST_PRODUCER_ID, _FIRST_PRODUCER_ID + min(_OPEN_AT_ONCE, count - start))
        for producer_id in producers:
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, value)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=start // _OPEN_AT_ONCE,
                transactional=True,
            )
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
            request = ProduceRequest(transactional_id="aborted", acks=-1, timeout_ms=30_000, topic_data=data)
            yield request, _PRODUCE_VERSION
        markers = [
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                coordinator_epoch=0,
            )
            for producer_id in producers
        ]
        yield WriteTxnMarkersRequest(markers=markers), _MARKERS_VERSION


def _check(answer: bytes, api_key: int) -> None:
    produced = api_key == ProduceRequest.API_KEY
    version = _PRODUCE_VERSION if produced else _MARKERS_VERSION
    _, position = decode_response_header(answer, api_key, version)
    body = memoryview(answer)[position:]
    if produced:
        topics = ProduceResponse.decode(body, version).responses
        errors = [response.error_code for topic in topics for response in topic.partition_responses]
    else:
        decoded = WriteTxnMarkersResponse.decode(body, version)
        errors = [
            partition.error_code
            for marker in decoded.markers
            for topic in marker.topics
            for partition in topic.partitions
        ]
    if any(errors):
        raise RuntimeError(f"refused: {errors}")
