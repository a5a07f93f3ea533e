"""Sends the cases to a broker and puts its answers into words: an error and the records it names, or what is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, compute_crc, read_header
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.conformance.produced_batches.bodies import batch, compressed
from tests.conformance.produced_batches.cases import (
    CODECS,
    GOOD,
    Cases,
    header_cases,
    large_cases,
    limited_cases,
    long_bodies,
    payload_cases,
    record_bodies,
)
from tests.peers.clients.sweep.wire import Wire

Answers = dict[str, dict[str, str]]
"""By group and case."""
DAY_MS: Final = 86_400_000
_MAX_BYTES: Final = 50_000_000
_COMPARED: Final = tuple(
    name for name in BatchHeader._fields if name not in ("base_offset", "crc", "partition_leader_epoch")
)


class Group(NamedTuple):
    """Cases that are sent to one topic in one version of Produce."""

    cases: Callable[[], Cases]
    version: int = 9
    configs: Mapping[str, str] = {}


def _bodies(codec: Codec) -> Cases:
    if codec is Codec.NONE:
        return {name: batch(body) for name, body in record_bodies().items()}
    return {name: compressed(codec, body) for name, body in record_bodies().items()}


def _long(codec: Codec) -> Cases:
    return {name: compressed(codec, body, count) for name, (count, body) in long_bodies().items()}


def _by_header(codec: Codec) -> Cases:
    """Headers that make a difference where a topic has records validated or changed."""
    words = ("good", "attributes", "timestamps", "append time", "producer 5004")
    return {name: data for name, data in header_cases(codec).items() if name.startswith(words)}


def _by_records(codec: Codec) -> Cases:
    words = ("good", "one record", "three records", "key null", "timestamp delta", "offset delta", "header named")
    return {name: data for name, data in _bodies(codec).items() if name.startswith(words)}


def _versions() -> Cases:
    result = {f"good, {codec.name.lower()}": compressed(codec, GOOD) for codec in CODECS}
    headers = ("two batches", "magic 1", "cut by a byte", "wrong checksum", "base offset 1", "no records at all")
    result |= {name: header_cases(Codec.NONE)[name] for name in headers}
    return result | {"zstd, one record": _bodies(Codec.ZSTD)["one record"]}


def _groups() -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for codec in CODECS:
        name = codec.name.lower()
        groups[f"records-{name}"] = Group(lambda codec=codec: _bodies(codec))  # type: ignore[misc]  # bound here
        groups[f"limited-{name}"] = Group(lambda codec=codec: limited_cases(codec), configs=_LIMITED)  # type: ignore[misc]  # as above
        groups[f"long-{name}"] = Group(lambda codec=codec: _long(codec))  # type: ignore[misc]  # as above
        if codec is not Codec.NONE:
            groups[f"payloads-{name}"] = Group(lambda codec=codec: payload_cases(codec))  # type: ignore[misc]  # as above
            groups[f"large-{name}"] = Group(lambda codec=codec: large_cases(codec))  # type: ignore[misc]  # as above
    for codec in (Codec.NONE, Codec.LZ4):
        name = codec.name.lower()
        groups[f"headers-{name}"] = Group(lambda codec=codec: header_cases(codec))  # type: ignore[misc]  # as above
        for title, configs in _TOPICS.items():
            groups[f"{title}-headers-{name}"] = Group(lambda codec=codec: _by_header(codec), configs=configs)  # type: ignore[misc]  # as above
            groups[f"{title}-records-{name}"] = Group(lambda codec=codec: _by_records(codec), configs=configs)  # type: ignore[misc]  # as above
    return groups | {f"version-{version}": Group(_versions, version) for version in (3, 7, 9, 13)}


_LIMITED: Final = {"max.decompressed.message.bytes": "14", "cleanup.policy": "compact"}
_TOPICS: Final[dict[str, dict[str, str]]] = {
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "bounded": {"message.timestamp.before.max.ms": str(DAY_MS)},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
    "lz4-append-time": {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"},
}
GROUPS: Final = _groups()


def ask_group(bootstrap_servers: str, name: str) -> dict[str, str]:
    """Send all cases of a group, one after the other; the answers by case."""
    group = GROUPS[name]
    with Wire(bootstrap_servers) as wire:
        topic_id = wire.topic(name, **{"retention.ms": "-1", **group.configs})
        end = 0
        answers: dict[str, str] = {}
        for case, data in group.cases().items():
            answer = _produce(wire, name, topic_id, data, group.version)
            if answer is None:
                answers[case] = "connection closed"
            elif answer.error_code:
                records = [error.batch_index for error in answer.record_errors]
                answers[case] = ErrorCode(answer.error_code).name + (f" {records}" if records else "")
            else:
                stored = _stored(wire, name, answer.base_offset)
                wrong = "" if answer.base_offset == end else f"offset {answer.base_offset} instead of {end}, "
                end = read_header(stored).next_offset
                answers[case] = wrong + _described(data, stored)
        return answers


def _produce(wire: Wire, topic: str, topic_id: bytes, data: bytes, version: int) -> PartitionProduceResponse | None:
    partition = PartitionProduceData(index=0, records=data)
    named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
    while True:
        answer = wire.call(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[named]), version)
        result: PartitionProduceResponse | None = None if answer is None else answer.responses[0].partition_responses[0]
        if result is None or result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:  # it is being created
            return result


def _stored(wire: Wire, topic: str, offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    answer = wire.call(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=_MAX_BYTES, topics=topics), 11)
    records = answer.responses[0].partitions[0].records
    return b"".join(bytes(chunk) for chunk in records.chunks) if hasattr(records, "chunks") else bytes(records)


def _described(sent: bytes, stored: bytes) -> str:
    """How the stored batch differs from the one that was sent."""
    before, after = read_header(sent), read_header(stored)
    stored = stored[: after.size_bytes]
    words = ["stored"]
    if compute_crc(stored, 0, after) != after.crc:
        words.append("wrong checksum")
    rebuilt = stored[HEADER_SIZE:] != sent[HEADER_SIZE : before.size_bytes]
    if rebuilt:
        words.append("built anew" if _records(stored, after) == _records(sent, before) else "built anew, other records")
    for field in _COMPARED:
        was, is_now = getattr(before, field), getattr(after, field)
        if field == "max_timestamp" and after.is_log_append_time and abs(is_now - time.time() * 1000) < DAY_MS:
            words.append("max_timestamp now")
        elif was != is_now and not (rebuilt and field in ("batch_length", "base_timestamp")):
            words.append(f"{field} {is_now}")
    return ", ".join(words)


def _records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records as readers see them, but for their place in the log and a time that the broker has set."""
    as_sent = header._replace(base_offset=0, attributes=header.attributes & ~LOG_APPEND_TIME)
    return list(read_records(data, 0, as_sent, _MAX_BYTES))
