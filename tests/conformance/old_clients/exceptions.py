"""Answers of ours that differ from Apache Kafka 3.9.1's, and why."""

from __future__ import annotations

from typing import Any, Final

CORRUPT_MESSAGE: Final = 2
UNKNOWN_SERVER_ERROR: Final = -1
CUT: Final = "cut"
_TOO_LARGE: Final = {f"fetch {version}: 5000 bytes into {most}" for version in (0, 1, 2) for most in (20, 100, 5000)}


def expected(name: str, recorded: Any, ours: Any) -> Any:
    """The answer that ours has to give."""
    if name.startswith(("produce 2: no gzip", "produce 2: no snappy", "produce 2: no LZ4")):
        # Apache Kafka does not know what is wrong with what a decompressor cannot read.
        result = recorded["responses"][0]["partition_responses"][0]
        assert result["error_code"] == UNKNOWN_SERVER_ERROR
        return _with(recorded, "partition_responses", error_code=CORRUPT_MESSAGE)
    if not name.startswith("fetch"):
        return recorded
    partition = recorded["responses"][0]["partitions"][0]
    if name in _TOO_LARGE:
        # It answers nothing, and the client asks for ever. Up to 0.10 brokers cut the message, and the client says so.
        assert partition["records"] == []
        return _with(recorded, "partitions", records=CUT)
    results = partition["records"]
    if name.endswith("from a marker"):
        # It converts the first batch behind the control batch that it leaves out a second time.
        assert results[0] == results[1]
        results = results[1:]
    elif name.endswith("from the last marker"):
        # It sends the beginning of a message of 2 GiB, at which consumers end: ours have nothing to read yet.
        assert results == CUT
        results = []
    elif _is_beginning(results, ours["responses"][0]["partitions"][0]["records"]):
        # It gives no more bytes than the batches had before they were converted.
        results = ours["responses"][0]["partitions"][0]["records"]
    return _with(recorded, "partitions", records=results)


def _is_beginning(some: Any, more: Any) -> bool:
    return isinstance(some, list) and bool(some) and isinstance(more, list) and more[: len(some)] == some


def _with(recorded: Any, partitions: str, **changed: Any) -> Any:
    """The answer about the one partition with other values."""
    [topic] = recorded["responses"]
    [partition] = topic[partitions]
    return {**recorded, "responses": [{**topic, partitions: [{**partition, **changed}]}]}
