"""Transactions as an administrator sees them, in this broker and in any Apache Kafka (KIP-664).

Modules: ``listing`` and ``describing`` ask coordinators, ``producers`` asks partition leaders, ``hanging`` puts both
side by side, ``judging`` says what follows (pure), ``explaining`` tells why a consumer does not advance, ``aborting``
and ``terminating`` end transactions. ``asking`` is how many brokers are asked at once.

What programs use can be imported from here, and is loaded when it is first asked for: ``scan`` or ``find_hanging``,
``explain_group``, ``explain_topic``, ``explain_id``, ``abort``, ``force_terminate``, ``list_transactions``,
``describe_transactions`` and ``describe_producers``, each with the rows it returns.

The rule: a broker that is down, or forbids a request, is a row of its own (:class:`asking.Unanswered`); it never makes
the other brokers' answers worthless, and never lets a transaction look worse than it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.admin.transactions.aborting import Aborted, abort, find_one
    from oncelog.admin.transactions.asking import Unanswered
    from oncelog.admin.transactions.audit import audit_file
    from oncelog.admin.transactions.describing import TransactionRow, describe_transaction, describe_transactions
    from oncelog.admin.transactions.explaining import Explanation, explain_group, explain_id, explain_topic
    from oncelog.admin.transactions.hanging import HangingRow, OpenTransaction, Scan, Scope, find_hanging, scan
    from oncelog.admin.transactions.judging import Verdict
    from oncelog.admin.transactions.listing import ListFilter, Listing, list_transactions
    from oncelog.admin.transactions.producers import ProducerRow, describe_producers
    from oncelog.admin.transactions.terminating import Terminated, force_terminate

_ELSEWHERE: Final = {
    "Aborted": "aborting",
    "Explanation": "explaining",
    "HangingRow": "hanging",
    "ListFilter": "listing",
    "Listing": "listing",
    "OpenTransaction": "hanging",
    "ProducerRow": "producers",
    "Scan": "hanging",
    "Scope": "hanging",
    "Terminated": "terminating",
    "TransactionRow": "describing",
    "Unanswered": "asking",
    "Verdict": "judging",
    "abort": "aborting",
    "audit_file": "audit",
    "describe_producers": "producers",
    "describe_transaction": "describing",
    "describe_transactions": "describing",
    "explain_group": "explaining",
    "explain_id": "explaining",
    "explain_topic": "explaining",
    "find_hanging": "hanging",
    "find_one": "aborting",
    "force_terminate": "terminating",
    "list_transactions": "listing",
    "scan": "hanging",
}

__all__ = [
    "Aborted",
    "Explanation",
    "HangingRow",
    "ListFilter",
    "Listing",
    "OpenTransaction",
    "ProducerRow",
    "Scan",
    "Scope",
    "Terminated",
    "TransactionRow",
    "Unanswered",
    "Verdict",
    "abort",
    "audit_file",
    "describe_producers",
    "describe_transaction",
    "describe_transactions",
    "explain_group",
    "explain_id",
    "explain_topic",
    "find_hanging",
    "find_one",
    "force_terminate",
    "list_transactions",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
