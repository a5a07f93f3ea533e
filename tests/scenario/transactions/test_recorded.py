"""The same requests as a real Apache Kafka 4.3.1 answered, and the same bytes as it wrote to ``__transaction_state``.

``data/apache-kafka-4.3.1.txt`` holds requests with their final answers (CONCURRENT_TRANSACTIONS was retried, as clients
do), then the log: time, key, value. Each decision is made at the time Apache Kafka's record says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.core.transactions.decisions import add_error, end_error, init_error
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import TransactionDecision
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.records.internal.transaction_records import TransactionValue, decode_value, encode_value
from tests.scenario.transactions.driver import Driver, identity

RECORDED = Path(__file__).with_name("data") / "apache-kafka-4.3.1.txt"


LATE_COMMITS = [
    ["end", tid, 5, who, True, [ErrorCode.INVALID_TXN_STATE, -1, -1]] for tid, who in (("a", [0, 2]), ("c", [2, 0]))
]
"""Commits of aborted transactions, as Apache Kafka answers them."""


class Replay(Driver):
    """A driver whose clock is Apache Kafka's log."""

    def carry_out(self, decision: TransactionDecision, token: int = 0) -> Any:
        """As the driver; the next decision is made when Apache Kafka made its next."""
        reply = super().carry_out(decision, token)
        self.set_clock()
        return reply

    def set_clock(self) -> None:
        """To the time in the next record."""
        if len(self.log) < len(self.expected):
            value = decode_value(self.expected[len(self.log)][1])
            assert isinstance(value, TransactionValue)
            self.now_ms = value.last_update_timestamp

    def write_markers(self) -> None:
        """The transaction completes when Apache Kafka's did."""
        self.set_clock()
        super().write_markers()

    expected: list[tuple[bytes, bytes]] = []  # noqa: RUF012  # set once by the test


def _call(driver: Replay, step: list[Any]) -> Any:
    kind, tid, *rest = step
    if kind == "init":
        version, timeout_ms, expected, two_phase, keep, _ = rest
        who = None if expected == [-1, -1] else identity(*expected)
        reply = driver.init(who, tid=tid, timeout_ms=timeout_ms, two_phase=two_phase, keep=keep)
        return [init_error(reply.error_code, version), *reply.identity]
    if kind in ("add", "verify"):
        version, who, indexes, _ = rest
        ask = driver.verify if kind == "verify" else driver.add
        answer = ask(identity(*who), *indexes, tid=tid, **({} if kind == "verify" else {"version": 2 * (version >= 4)}))
        codes = answer if isinstance(answer, list) else [answer] * max(1, len(indexes))
        return [add_error(code, version) for code in codes]
    if kind == "end":
        version, who, commit, _ = rest
        reply = driver.end(identity(*who), commit=commit, tid=tid, version=2 * (version >= 5))
        message = reply.identity if version >= 5 else Identity()
        return [end_error(reply.error_code, version), *message]
    description = driver.shard.describe(tid)
    assert description is not None
    indexes = sorted(partition for _, partition in description.partitions)
    return [ErrorCode.NONE, description.state, *description.identity, description.timeout_ms, indexes]


def _sorted(value: TransactionValue) -> list[tuple[str, list[int]]]:
    return sorted((topic, sorted(indexes)) for topic, indexes in value.partitions or ())


def test_answers_and_log_are_apache_kafkas() -> None:
    """Byte for byte, but for KeepPreparedTxn, which is left out, and for commits after an abort (KAFKA-20785)."""
    script, _, log = RECORDED.read_text().partition("--\n")
    steps = [json.loads(line) for line in script.splitlines()]
    settings = TransactionSettings(two_phase_commit_enable=True, abort_timed_out_interval_ms=1)
    driver = Replay(settings, next_producer_id=0)
    driver.expected = [(bytes.fromhex(key), bytes.fromhex(value)) for _, key, value in map(str.split, log.splitlines())]
    driver.set_clock()
    for step in steps:
        if step[0] == "time_out":
            driver.run_due()
        elif step[-2] is not True or step[0] != "init":
            expected = [ErrorCode.PRODUCER_FENCED, -1, -1] if step in LATE_COMMITS else step[-1]
            assert _call(driver, step) == expected, step
    for mine, kafkas in zip(driver.log, driver.expected, strict=True):
        assert mine[0] == kafkas[0]
        value, theirs = decode_value(mine[1] or b""), decode_value(kafkas[1])
        assert isinstance(value, TransactionValue)
        assert isinstance(theirs, TransactionValue)
        # What we write with one append has one time; Apache Kafka writes it with two, and partitions in hash order.
        assert abs(value.last_update_timestamp - theirs.last_update_timestamp) <= 20
        assert _sorted(value) == _sorted(theirs)
        same = value._replace(last_update_timestamp=theirs.last_update_timestamp, partitions=theirs.partitions)
        assert encode_value(same, 1).hex() == kafkas[1].hex()
