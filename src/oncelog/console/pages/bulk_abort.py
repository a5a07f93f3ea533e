"""Bulk abort of hanging transactions: the page shows a list, and the action aborts exactly that list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.abort_marker import Aborted, race_of, refusal
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, Listed, partition_of
from oncelog.console.page import PageRequest
from oncelog.console.pages.transactions import row_of
from oncelog.console.query import BadQuery

MAX_TRANSACTIONS: Final = 50  # Transactions aborted by one form; the next page has the others.
MAX_LIST_LENGTH: Final = 100_000


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The hanging transactions that a marker may end: the list of ``txn abort --all-hanging --dry-run``."""
    query = page_request.query
    topic, min_age_ms = query.text("topic"), query.optional_number("min_age_ms")
    scanned = scan(client, Scope((topic,) if topic else ()), min_age_ms=min_age_ms)
    hanging = [transaction for transaction in scanned.of(Verdict.HANGING) if refusal(transaction) is None]
    shown = hanging[:MAX_TRANSACTIONS]
    sent = [
        [
            transaction.topic_partition.topic,
            transaction.topic_partition.partition,
            transaction.start_offset,
            transaction.producer.producer_id,
        ]
        for transaction in shown
    ]
    return {
        "rows": [row_of(transaction, scanned.now_ms) for transaction in shown],
        "total": len(hanging),
        "filter": {"topic": topic, "min_age_ms": min_age_ms},
        "races": sorted({race for transaction in shown if (race := race_of(transaction)) is not None}),
        "sent": json.dumps(sent, separators=(",", ":")),
        "typed": f"abort {len(shown)}",
        "unanswered": list(map(str, scanned.unanswered)),
    }


def list_of(text: str) -> list[Listed]:
    """The list in a form. Raises BadQuery."""
    try:
        rows = [(str(topic), [int(number) for number in numbers]) for topic, *numbers in json.loads(text)]
        listed = [
            Listed(partition_of(topic, partition), start, producer_id)
            for topic, (partition, start, producer_id) in rows
        ]
    except (ValueError, TypeError, RecursionError):
        raise BadQuery("the form has no valid list of transactions: choose them on the page again") from None
    if not 0 < len(listed) <= MAX_TRANSACTIONS:
        raise BadQuery(f"the form lists {len(listed)} transactions; 1 to {MAX_TRANSACTIONS} are allowed")
    return listed


def act(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    listed = list_of(query.long("list", MAX_LIST_LENGTH))
    results = changes.abort_listed(client, permit, listed, query.text("typed"), query.optional_number("min_age_ms"))
    failed = [result for result in results if isinstance(result, Aborted) and result.error is not None]
    warnings = [result.warning for result in results if isinstance(result, Aborted) and result.warning is not None]
    return {
        "what": f"{len(listed)} transactions",
        "error": f"{len(failed)} of {len(listed)} were not ended" if failed else None,
        "warning": "; ".join(warnings) or None,
        "said": [_said(result) for result in results],
    }


def _said(result: Aborted | Listed) -> str:
    if isinstance(result, Listed):
        return f"{result.partition} from {result.start_offset}: it had already ended."
    transaction = result.transaction
    if result.error is not None:
        return f"{transaction.topic_partition} from {transaction.start_offset}: not ended: {result.error}"
    return (
        f"{transaction.topic_partition} from {transaction.start_offset}: aborted; "
        f"last stable offset {result.stable_before} → {result.stable_after}."
    )
