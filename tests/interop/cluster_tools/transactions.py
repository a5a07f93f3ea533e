"""The part of the session that is about transactions: listed, described, searched for hanging ones, ended by hand.

One hangs as they did before KIP-890: a batch that comes after its transaction's end, to a leader that asks no
coordinator. Its topics have no replica on the broker that is the coordinator's by chance alone.
"""

from __future__ import annotations

import time

from oncelog.client.blocking import Client
from tests.interop.admin.lab import ByHand, at
from tests.interop.cluster_tools.session import Session

TOOL = "kafka-transactions"
HOUR_MS = 3_600_000
CHANCE = (
    "Coordinator",
    "CoordinatorId",
    "CoordinatorEpoch",
    "ProducerId",
    "LatestCoordinatorEpoch",
    "LastTimestamp",
    "LastTimestamp",
    "TransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
)
"""Columns that differ from run to run, or by who happens to lead a partition of ``__transaction_state``."""


def transactions(session: Session) -> None:
    """kafka-transactions: all it can do, on partitions of three leaders."""
    session.create("spanned", "1:2:3,2:3:1,3:1:2")
    with Client(session.brokers.bootstrap_servers) as client:
        _look(session, client)
        _hanging(session, client)
        _forced(session, client)


def _table(session: Session, *arguments: str) -> None:
    session.run(TOOL, *arguments, columns=CHANCE)


def _look(session: Session, client: Client) -> None:
    """One that was committed, one that is open over three leaders."""
    done = ByHand(client, "done", timeout_ms=900_000)
    done.begin(at("spanned", 0), at("spanned", 2))
    done.end()
    live = ByHand(client, "live", timeout_ms=900_000)
    live.begin(*(at("spanned", number) for number in range(3)))
    _table(session, "list")
    _table(session, "list", "--duration-filter", "3600000")
    _table(session, "list", "--transactional-id-pattern", "l.*e")
    _table(session, "list", "--transactional-id-pattern", "l(")
    _table(session, "describe", "--transactional-id", "live")
    _table(session, "describe", "--transactional-id", "done")
    _table(session, "describe", "--transactional-id", "absent")
    for number in ("0", "1"):
        _table(session, "describe-producers", "--topic", "spanned", "--partition", number)
    _table(session, "describe-producers", "--topic", "spanned", "--partition", "0", "--broker-id", "1")
    _table(session, "describe-producers", "--topic", "spanned", "--partition", "0", "--broker-id", "2")
    live.end(commit=False)
    _table(session, "describe", "--transactional-id", "live")


def _hanging(session: Session, client: Client) -> None:
    """One that hangs on broker 2, beside one that only is old."""
    moment = time.time_ns() // 1_000_000 - HOUR_MS
    late = ByHand(client, "late", timeout_ms=900_000)
    late.begin(at("spanned", 1), timestamp_ms=moment)
    late.end()
    start = late.write(at("spanned", 1), timestamp_ms=moment)
    late.begin(at("spanned", 0), timestamp_ms=moment)
    old = ByHand(client, "old", timeout_ms=900_000)
    old.begin(at("spanned", 2), timestamp_ms=moment)
    place = ("--topic", "spanned", "--partition", "1")
    _table(session, "find-hanging", "--broker-id", "2")
    _table(session, "find-hanging", "--broker-id", "1")
    _table(session, "find-hanging", "--topic", "spanned")
    _table(session, "find-hanging", *place, "--max-transaction-timeout", "120")
    _table(session, "find-hanging", "--broker-id", "9")
    _table(session, "find-hanging")
    _table(session, "abort", *place, "--start-offset", str(start + 1000))
    _table(session, "abort", *place)
    _table(session, "abort", *place, "--start-offset", str(start))
    _table(session, "find-hanging", "--broker-id", "2")
    _table(session, "describe-producers", *place)
    session.run("kafka-get-offsets", "--topic-partitions", "spanned:1")
    late.end()
    old.end()


def _forced(session: Session, client: Client) -> None:
    """Ending one by its id alone (KIP-939)."""
    open_one = ByHand(client, "forced", timeout_ms=900_000)
    open_one.begin(at("spanned", 0), at("spanned", 1))
    _table(session, "forceTerminateTransaction", "--transactionalId", "forced")
    _table(session, "forceTerminateTransaction", "--transactionalId", "absent")
