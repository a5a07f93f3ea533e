"""Transactions: those that are open with their verdicts, one of them, one transactional id; and their two ends."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.abort_marker import race_of, refusal
from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scope, scan
from oncelog.admin.transactions.id_pages import page_of_ids
from oncelog.admin.transactions.report import clears_at_ms
from oncelog.admin.transactions.termination import warning_of
from oncelog.admin.transactions.transactional_ids import ListFilter, describe_transaction
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.notation.shell_words import option
from oncelog.base.transaction_verdicts import RULES, Verdict
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, partition_of
from oncelog.console.cluster.access import ClusterSlow
from oncelog.console.page import Asked
from oncelog.console.pages import IDS_PATIENCE_S
from oncelog.console.query import Query
from oncelog.console.rendering import ROWS_A_PAGE, one_page

LONGEST_ID: Final = 32_767
_LISTING_S: Final = 2.0
_ONE_LIST: Final = threading.Lock()
"""An answer with a million ids takes tens of megabytes: one is read at a time."""
_ORDER: Final = (Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE, Verdict.LIVE)


def read_open(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Open transactions, those that hang first, then the oldest; and the ids that coordinators have."""
    query = asked.query
    topic, min_age_ms = query.text("topic"), query.optional_number("min_age_ms")
    scanned = scan(client, Scope((topic,) if topic else ()), min_age_ms=min_age_ms)
    verdict = query.choice("verdict", ("", *(one.value for one in _ORDER)))
    rows = [
        row_of(transaction, scanned.now_ms)
        for transaction in scanned.transactions
        if verdict in ("", transaction.verdict.value)
    ]
    order = [one.value for one in _ORDER]
    rows.sort(key=lambda row: (order.index(row["verdict"]), -(row["age_ms"] or 0)))
    return {
        "open": one_page(rows, query.number("page", 1, 1)),
        "counts": {one.value: len(scanned.of(one)) for one in _ORDER},
        "filter": {"topic": topic, "verdict": verdict, "min_age_ms": min_age_ms},
        "partitions": scanned.partitions,
        "saw_nothing": scanned.saw_nothing,
        "unanswered": list(map(str, scanned.unanswered)),
    }


def row_of(one: OpenTransaction, now_ms: int) -> dict[str, Any]:
    """An open transaction as pages show it: the row of ``find-hanging --json``, and what matters beside it."""
    row = one.as_row()
    fires_ms = clears_at_ms(one)
    return {
        **{name: getattr(row, name) for name in row.__slots__},
        "holds": one.holds,
        "timeout_ms": None if one.row is None else one.row.timeout_ms,
        "times_out_in_ms": None if fires_ms is None else max(0, fires_ms - now_ms),
        "last_stable_offset": one.start.last_stable_offset,
        "end_offset": one.start.end_offset,
        "code": one.code.value,
    }


def read_one(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One open transaction, and what could be done about it: the dry run of ``txn abort``."""
    where, start_offset, min_age_ms = _named(asked.query)
    scanned = scan(client, Scope(partitions=(where,)), min_age_ms=min_age_ms)
    found = next(
        (transaction for transaction in scanned.transactions if transaction.start_offset == start_offset), None
    )
    if found is None:
        if scanned.unanswered:
            raise ClientError(str(scanned.unanswered[0]))
        return {"transaction": None, "where": str(where), "start_offset": start_offset, "min_age_ms": min_age_ms}
    refused = refusal(found, options=asked.settings.command_options)
    rule = RULES[found.code]
    return {
        "transaction": row_of(found, scanned.now_ms),
        "where": str(where),
        "start_offset": start_offset,
        "min_age_ms": min_age_ms,
        "dry_run": {"would_abort": refused is None, "refused_because": refused, "race": race_of(found)},
        "typed": found.transactional_id or str(found.producer.producer_id),
        "can_terminate": rule.force_terminate and found.transactional_id is not None,
        "command": (
            f"oncelog txn abort {option('--topic', where.topic)} --partition {where.partition} "
            f"--start-offset {start_offset}"
            f"{asked.settings.command_options}"
        ),
    }


def _named(query: Query) -> tuple[TopicPartition, int, int | None]:
    where = TopicPartition(TopicName(query.needed("topic")), query.number("partition", 0, 0, 2**31 - 1))
    return where, query.number("start_offset", 0), query.optional_number("min_age_ms")


def read_id(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One transactional id as its coordinator has it; without an id, the ids of all coordinators, by name."""
    query = asked.query
    name = query.text("id")
    if name:
        row = describe_transaction(client, name)
        warning = warning_of(row) if row.is_open else None
        found = {one: getattr(row, one) for one in row.__slots__} | {"partitions": sorted(row.partitions)}
        return {"id": name, "found": found, "is_open": row.is_open, "warning": warning, "two_phase": row.is_two_phase}
    state, pattern = query.text("state"), query.text("pattern")
    wanted = ListFilter((state,) if state else (), pattern=pattern or None)
    after, before = query.long("after", LONGEST_ID), query.long("before", LONGEST_ID)
    if not _ONE_LIST.acquire(timeout=_LISTING_S):
        raise ClusterSlow("another list of transactional ids is being read; ask again")
    answer_ms = int(IDS_PATIENCE_S * 1000)
    try:
        ids = page_of_ids(client, wanted, count=ROWS_A_PAGE, after=after, before=before, answer_ms=answer_ms)
    finally:
        _ONE_LIST.release()
    return {
        "id": None,
        "ids": {"rows": ids.rows, "total": ids.total, "ahead": ids.ahead, "has_more": ids.has_more},
        "filter": {"state": state, "pattern": pattern},
        "after": after,
        "unanswered": list(map(str, ids.unanswered)),
    }


def act_abort(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    where, start_offset, min_age_ms = _named(query)
    result = changes.abort_hanging(
        client, permit, partition_of(where.topic, where.partition), start_offset, query.text("typed"), min_age_ms
    )
    return {
        "what": f"{where} from offset {start_offset}",
        "error": result.error,
        "warning": result.warning,
        "said": []
        if result.error
        else [
            "The abort marker is written.",
            f"Last stable offset: {result.stable_before} → {result.stable_after}, end of the log {result.end_offset}.",
            *([] if result.next_start is None else [f"Held by the next transaction, from {result.next_start}."]),
        ],
    }


def act_terminate(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    """Have the coordinator abort an id's open transaction."""
    name = asked.query.needed("id")
    done = changes.terminate(client, permit, name, asked.query.text("typed"))
    bounds = [f"{w}: last stable offset {b.last_stable_offset}, end {b.end_offset}." for w, b in done.bounds.items()]
    return {
        "what": name,
        "error": None if done.done else f"It has no open transaction ({done.after.state}); nothing was done.",
        "warning": None,
        "said": [f"{done.before.state} → {done.after.state}, epoch {done.after.producer_epoch}.", *bounds],
    }
