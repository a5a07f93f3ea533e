"""Inspects and ends transactions as an administrator, in this broker and in any Apache Kafka (KIP-664).

``cluster_scan`` joins the answers of coordinators and leaders, ``classification`` gives the verdict (pure; the rule is
``base.transaction_verdicts``), ``explanations`` finds out why a consumer does not advance; ``abort_marker``,
``termination`` and ``ending`` end transactions. Programs import from here, and modules load on first use.

The rule: a broker that is down or refuses a request becomes a row (:class:`broker_requests.Unanswered`); it never
invalidates the other brokers' answers, and never makes a transaction look worse than it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from oncelog.admin.transactions.abort_marker import Aborted, abort, abort_transaction, find_one
    from oncelog.admin.transactions.audit_trail import audit_file
    from oncelog.admin.transactions.broker_requests import Unanswered
    from oncelog.admin.transactions.cluster_scan import (
        HangingRow,
        OpenTransaction,
        Scan,
        Scope,
        find_hanging,
        partitions_of,
        scan,
    )
    from oncelog.admin.transactions.ending import EndedTransaction, EndPlan, end_stored, plan_end
    from oncelog.admin.transactions.explanations import Explanation, explain_group, explain_id, explain_topic
    from oncelog.admin.transactions.history.recent_ends import RecentEnds, read_recent_ends
    from oncelog.admin.transactions.history.unused_ids import IdCensus, unused_ids
    from oncelog.admin.transactions.producers import ProducerRow, Producers, describe_producers
    from oncelog.admin.transactions.stored_identity import EndAction, IdentityState
    from oncelog.admin.transactions.termination import Fenced, Terminated, fence_producers, force_terminate
    from oncelog.admin.transactions.transactional_ids import (
        Described,
        ListFilter,
        Listing,
        TransactionRow,
        describe_transaction,
        describe_transactions,
        list_transactions,
    )
    from oncelog.base.transaction_verdicts import Verdict
    from oncelog.client.machine.transaction_values import StoredTransaction

_ELSEWHERE: Final = {
    "Aborted": ".abort_marker",
    "Described": ".transactional_ids",
    "EndAction": ".stored_identity",
    "EndPlan": ".ending",
    "EndedTransaction": ".ending",
    "Explanation": ".explanations",
    "Fenced": ".termination",
    "HangingRow": ".cluster_scan",
    "IdCensus": ".history.unused_ids",
    "IdentityState": ".stored_identity",
    "ListFilter": ".transactional_ids",
    "Listing": ".transactional_ids",
    "OpenTransaction": ".cluster_scan",
    "ProducerRow": ".producers",
    "Producers": ".producers",
    "RecentEnds": ".history.recent_ends",
    "Scan": ".cluster_scan",
    "Scope": ".cluster_scan",
    "StoredTransaction": "oncelog.client.machine.transaction_values",
    "Terminated": ".termination",
    "TransactionRow": ".transactional_ids",
    "Unanswered": ".broker_requests",
    "Verdict": "oncelog.base.transaction_verdicts",
    "abort": ".abort_marker",
    "abort_transaction": ".abort_marker",
    "audit_file": ".audit_trail",
    "describe_producers": ".producers",
    "describe_transaction": ".transactional_ids",
    "describe_transactions": ".transactional_ids",
    "end_stored": ".ending",
    "explain_group": ".explanations",
    "explain_id": ".explanations",
    "explain_topic": ".explanations",
    "fence_producers": ".termination",
    "find_hanging": ".cluster_scan",
    "find_one": ".abort_marker",
    "force_terminate": ".termination",
    "list_transactions": ".transactional_ids",
    "partitions_of": ".cluster_scan",
    "plan_end": ".ending",
    "read_recent_ends": ".history.recent_ends",
    "scan": ".cluster_scan",
    "unused_ids": ".history.unused_ids",
}

__all__ = [
    "Aborted",
    "Described",
    "EndAction",
    "EndPlan",
    "EndedTransaction",
    "Explanation",
    "Fenced",
    "HangingRow",
    "IdCensus",
    "IdentityState",
    "ListFilter",
    "Listing",
    "OpenTransaction",
    "ProducerRow",
    "Producers",
    "RecentEnds",
    "Scan",
    "Scope",
    "StoredTransaction",
    "Terminated",
    "TransactionRow",
    "Unanswered",
    "Verdict",
    "abort",
    "abort_transaction",
    "audit_file",
    "describe_producers",
    "describe_transaction",
    "describe_transactions",
    "end_stored",
    "explain_group",
    "explain_id",
    "explain_topic",
    "fence_producers",
    "find_hanging",
    "find_one",
    "force_terminate",
    "list_transactions",
    "partitions_of",
    "plan_end",
    "read_recent_ends",
    "scan",
    "unused_ids",
]

__getattr__ = lazy_names(__name__, _ELSEWHERE)
