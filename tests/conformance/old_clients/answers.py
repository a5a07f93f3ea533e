"""Answers as values that can be compared: what differs from broker to broker and from time to time is left out."""

from __future__ import annotations

from typing import Any, Final

from oncelog.legacy.message_set.entry import shallow
from oncelog.legacy.message_set.reading import messages_of
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from tests.conformance.old_clients.sets import FAR_MS, MADE_MS
from tests.wire_structs import is_struct

CLOSED: Final = "connection closed"
COORDINATOR_ERRORS: Final = {5, 14, 15, 16, 51}
_LEFT_OUT: Final = {
    "brokers",
    "controller_id",
    "cluster_id",
    "node_id",
    "host",
    "port",
    "leader_id",
    "replica_nodes",
    "isr_nodes",
    "error_message",
    "record_errors",
    "current_leader",
    "node_endpoints",
    "log_start_offset",
    "topic_id",
    "is_internal",
    "producer_id",
}
_OLD_KEYS: Final = (0, 1, 2, 8, 9)


def described(response: Any, first_offset: int = 0) -> Any:
    """The fields of an answer; message sets as the messages from ``first_offset`` on, which clients are given."""
    if type(response).__name__ == "ApiVersionsResponse":
        return {str(row.api_key): row.min_version for row in response.api_keys if row.api_key in _OLD_KEYS}
    return _value("", response, first_offset)


def _value(name: str, value: Any, first_offset: int) -> Any:
    if name == "records":
        return _messages(bytes(value or b""), first_offset)
    if name == "log_append_time_ms":
        return value if value == -1 else "now"
    if is_struct(value):
        fields = [field for field in value.__slots__ if field not in _LEFT_OUT]
        return {field: _value(field, getattr(value, field), first_offset) for field in fields}
    if isinstance(value, list):
        described = [_value("", item, first_offset) for item in value]
        return sorted(described, key=lambda item: item["name"]) if name == "topics" else described
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _messages(data: bytes, first_offset: int) -> Any:
    results: list[Any] = []
    try:
        for entry in shallow(data):
            for message in messages_of(data, entry):
                if message.offset >= first_offset:
                    made = MADE_MS <= message.timestamp < MADE_MS + 1000 or message.timestamp in (-1, FAR_MS)
                    text = [None if part is None else part.decode() for part in (message.key, message.value)]
                    time = message.timestamp if made else "now"
                    results.append(
                        [message.offset, time, int(message.timestamp_type), *text, message.magic, entry.codec.name]
                    )
    except TruncatedBatch:
        if not results:
            return "cut"
    except CorruptBatch as error:
        return f"{results} and {error}"
    return results


def asks_again(response: Any) -> bool:
    """True if an answer says that there is no coordinator yet, or no leader."""
    return bool(set(_error_codes(response)) & COORDINATOR_ERRORS)


def _error_codes(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for item in value for code in _error_codes(item)]
    if not is_struct(value):
        return []
    names = [field for field in value.__slots__ if field.endswith("error_code")]
    codes = [int(getattr(value, name)) for name in names]
    return codes + [code for field in value.__slots__ for code in _error_codes(getattr(value, field))]
