"""Ending many hanging transactions at once: the list is shown, and exactly that list is gone through."""

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
from oncelog.console.page import Asked
from oncelog.console.pages.transactions import row_of
from oncelog.console.query import BadQuery

MOST: Final = 50
"""Transactions ended by one form; the next page has the others."""
LONGEST_LIST: Final = 100_000


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The transactions that hang and may be ended by a marker: what ``txn abort --all-hanging --dry-run`` lists."""
    query = asked.query
    topic, min_age_ms = query.text("topic"), query.optional_number("min_age_ms")
    scanned = scan(client, Scope((topic,) if topic else ()), min_age_ms=min_age_ms)
    hanging = [one for one in scanned.of(Verdict.HANGING) if refusal(one) is None]
    shown = hanging[:MOST]
    sent = [[one.where.topic, one.where.partition, one.start_offset, one.producer.producer_id] for one in shown]
    return {
        "rows": [row_of(one, scanned.now_ms) for one in shown],
        "total": len(hanging),
        "filter": {"topic": topic, "min_age_ms": min_age_ms},
        "races": sorted({race for one in shown if (race := race_of(one)) is not None}),
        "sent": json.dumps(sent, separators=(",", ":")),
        "typed": f"abort {len(shown)}",
        "unanswered": list(map(str, scanned.unanswered)),
    }


def list_of(text: str) -> list[Listed]:
    """The list that a form carried. Raises BadQuery."""
    try:
        rows = [(str(topic), [int(number) for number in numbers]) for topic, *numbers in json.loads(text)]
        found = [Listed(partition_of(topic, partition), start, who) for topic, (partition, start, who) in rows]
    except (ValueError, TypeError, RecursionError):
        raise BadQuery("the form has no list") from None
    if not 0 < len(found) <= MOST:
        raise BadQuery(f"the form lists {len(found)} transactions; it is 1 to {MOST}")
    return found


def act(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    """End those of the list that still hang."""
    query = asked.query
    listed = list_of(query.long("list", LONGEST_LIST))
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
        return f"{result.where} from {result.start_offset}: it had ended meanwhile."
    one = result.transaction
    if result.error is not None:
        return f"{one.where} from {one.start_offset}: not ended: {result.error}"
    return f"{one.where} from {one.start_offset}: aborted; stable {result.stable_before} → {result.stable_after}."
