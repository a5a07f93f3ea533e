"""Pages about transactions: the list of open ones with their verdicts, a single open one, and a single transactional
id; also the actions that end transactions.
"""

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
from oncelog.console.page import PageRequest
from oncelog.console.pages import IDS_PATIENCE_S
from oncelog.console.query import Query
from oncelog.console.rendering import ROWS_A_PAGE, one_page

MAX_ID_LENGTH: Final = 32_767
_LISTING_S: Final = 2.0
_ONE_LIST: Final[dict[str, threading.Lock]] = {}
"""Locks by the prefix of a cluster: a response with a million ids takes tens of MB, so one is read at a time."""
_ORDER: Final = (Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE, Verdict.LIVE)


def read_open(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Open transactions: hanging ones first, then by verdict, and the oldest first within a verdict."""
    query = page_request.query
    topic, min_age_ms = query.text("topic"), query.optional_number("min_age_ms")
    scanned = scan(client, Scope((topic,) if topic else ()), min_age_ms=min_age_ms)
    verdict = query.choice("verdict", ("", *(listed.value for listed in _ORDER)))
    rows = [
        row_of(transaction, scanned.now_ms)
        for transaction in scanned.transactions
        if verdict in ("", transaction.verdict.value)
    ]
    order = [listed.value for listed in _ORDER]
    rows.sort(key=lambda row: (order.index(row["verdict"]), -(row["age_ms"] or 0)))
    return {
        "open": one_page(rows, query.number("page", 1, 1)),
        "counts": {listed.value: len(scanned.of(listed)) for listed in _ORDER},
        "filter": {"topic": topic, "verdict": verdict, "min_age_ms": min_age_ms},
        "partitions": scanned.partitions,
        "saw_nothing": scanned.scanned_nothing,
        "unanswered": list(map(str, scanned.unanswered)),
    }


def row_of(transaction: OpenTransaction, now_ms: int) -> dict[str, Any]:
    """An open transaction as pages show it: the row of ``find-hanging --json``, with related values."""
    row = transaction.as_row()
    fires_ms = clears_at_ms(transaction)
    return {
        **{name: getattr(row, name) for name in row.__slots__},
        "holds": transaction.holds,
        "timeout_ms": None if transaction.row is None else transaction.row.timeout_ms,
        "two_phase": transaction.row is not None and transaction.row.is_two_phase,
        "times_out_in_ms": None if fires_ms is None else max(0, fires_ms - now_ms),
        "last_stable_offset": transaction.start.last_stable_offset,
        "end_offset": transaction.start.end_offset,
        "code": transaction.code.value,
    }


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One open transaction, and what may be done about it: the dry run of ``txn abort``."""
    partition, start_offset, min_age_ms = _named(page_request.query)
    scanned = scan(client, Scope(partitions=(partition,)), min_age_ms=min_age_ms)
    selected = next(
        (transaction for transaction in scanned.transactions if transaction.start_offset == start_offset), None
    )
    if selected is None:
        if scanned.unanswered:
            raise ClientError(str(scanned.unanswered[0]))
        return {"transaction": None, "where": str(partition), "start_offset": start_offset, "min_age_ms": min_age_ms}
    refused = refusal(selected, is_named=True, options=page_request.settings.command_options)
    rule = RULES[selected.code]
    return {
        "transaction": row_of(selected, scanned.now_ms),
        "where": str(partition),
        "start_offset": start_offset,
        "min_age_ms": min_age_ms,
        "dry_run": {"would_abort": refused is None, "refused_because": refused, "race": race_of(selected)},
        "typed": selected.transactional_id or str(selected.producer.producer_id),
        "can_terminate": rule.force_terminate and selected.transactional_id is not None,
        "command": (
            f"oncelog txn abort {option('--topic', partition.topic)} --partition {partition.partition} "
            f"--start-offset {start_offset}"
            f"{page_request.settings.command_options}"
        ),
    }


def _named(query: Query) -> tuple[TopicPartition, int, int | None]:
    partition = TopicPartition(TopicName(query.needed("topic")), query.number("partition", 0, 0, 2**31 - 1))
    return partition, query.number("start_offset", 0), query.optional_number("min_age_ms")


def read_id(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One transactional id as its coordinator reports it; without an id, the ids of all coordinators, by name."""
    query = page_request.query
    name = query.text("id")
    if name:
        row = describe_transaction(client, name)
        warning = warning_of(row) if row.is_open else None
        state_row = {field: getattr(row, field) for field in row.__slots__} | {"partitions": sorted(row.partitions)}
        return {
            "id": name,
            "found": state_row,
            "is_open": row.is_open,
            "warning": warning,
            "two_phase": row.is_two_phase,
        }
    state, pattern = query.text("state"), query.text("pattern")
    list_filter = ListFilter((state,) if state else (), pattern=pattern or None)
    after, before = query.long("after", MAX_ID_LENGTH), query.long("before", MAX_ID_LENGTH)
    one_list = _ONE_LIST.setdefault(page_request.settings.prefix, threading.Lock())
    if not one_list.acquire(timeout=_LISTING_S):
        raise ClusterSlow("another list of transactional ids is being read; try again")
    answer_ms = int(IDS_PATIENCE_S * 1000)
    try:
        ids = page_of_ids(client, list_filter, count=ROWS_A_PAGE, after=after, before=before, answer_ms=answer_ms)
    finally:
        one_list.release()
    return {
        "id": None,
        "ids": {"rows": ids.rows, "total": ids.total, "ahead": ids.ahead, "has_more": ids.has_more},
        "filter": {"state": state, "pattern": pattern},
        "after": after,
        "unanswered": list(map(str, ids.unanswered)),
    }


def act_abort(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    partition, start_offset, min_age_ms = _named(query)
    result = changes.abort_hanging(
        client,
        permit,
        partition_of(partition.topic, partition.partition),
        start_offset,
        query.text("typed"),
        min_age_ms,
    )
    return {
        "what": f"{partition} from offset {start_offset}",
        "error": result.error,
        "warning": result.warning,
        "said": []
        if result.error
        else [
            "The abort marker was written.",
            f"Last stable offset: {result.stable_before} → {result.stable_after}, end offset {result.end_offset}.",
            *([] if result.next_start is None else [f"Now held by the next transaction, from {result.next_start}."]),
        ],
    }


def act_terminate(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    name = page_request.query.needed("id")
    done = changes.terminate(client, permit, name, page_request.query.text("typed"))
    bounds = [f"{w}: last stable offset {b.last_stable_offset}, end {b.end_offset}." for w, b in done.bounds.items()]
    return {
        "what": name,
        "error": None if done.done else f"It has no open transaction ({done.after.state}); nothing was done.",
        "warning": None,
        "said": [f"{done.before.state} → {done.after.state}, epoch {done.after.producer_epoch}.", *bounds],
    }
