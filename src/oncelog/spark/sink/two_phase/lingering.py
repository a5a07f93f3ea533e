"""Finds the transactions that a dead query left open, each with the decision that its checkpoint implies.

The checkpoint's file ``metadata`` has the query id, by which the sink names its transactions. Rules:

1. The register decides (``register``): the transactions that a DECIDED epoch lists are committed, all others of the
   query are aborted. In BEGUN and DONE nothing is listed: the query writes an undecided epoch again.
2. Mode ``ledger`` commits the epoch in the transaction itself, so an open transaction of that mode is aborted.
3. Without a register nothing is known about transactions of two-phase commit: none is ended.

The query must not run meanwhile: it ends its transactions itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.admin.transactions.stored_identity import SavedTransaction
from oncelog.base.units import KIB
from oncelog.client.blocking import Client
from oncelog.client.blocking.transaction_admin import open_transactions
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.protocol import is_task_id, task_prefix
from oncelog.spark.sink.two_phase.register import Register, RegisterState
from oncelog.spark.sink.two_phase.register_topic import RegisterTopic

_METADATA: Final = "metadata"
_MAX_METADATA_BYTES: Final = 64 * KIB
_MAX_QUERY_ID: Final = 200
MAX_ENDED: Final = 100
"""Listed transactions that are no longer open are shown up to this number; a decision may list 250,000."""


class Lingering(NamedTuple):
    """A query's transactions with their decisions. ``hidden`` listed ones are not open any more, and left out."""

    query: str
    transactions: list[SavedTransaction]
    hidden: int


def query_id_of(checkpoint: Path) -> str:
    """The query id of a streaming query's checkpoint directory. Raises SinkError."""
    path = checkpoint / _METADATA
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_METADATA_BYTES + 1)
    except OSError as error:
        raise SinkError(
            f"{path} cannot be read ({error.strerror or error}): give the checkpointLocation of a streaming query"
        ) from None
    if len(content) > _MAX_METADATA_BYTES:
        raise SinkError(f"{path} has more than {_MAX_METADATA_BYTES} bytes: it is no query's metadata")
    try:
        query = json.loads(content)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SinkError(f"{path} is not a JSON object with the query's id") from None
    if not isinstance(query, str) or not 0 < len(query) <= _MAX_QUERY_ID or "/" in query or "\0" in query:
        raise SinkError(f"{path} has an id that no query has: {str(query)[:80]!r}")
    return query


def lingering_transactions(client: Client, checkpoint: Path) -> Lingering:
    """The query's open transactions, and the listed ones of its decision. Raises SinkError, ClientError."""
    query = query_id_of(checkpoint)
    topic = RegisterTopic(client, query)
    try:
        register = topic.read()
    finally:
        topic.close()
    still_open = set(open_transactions(client, task_prefix(query)))
    if register is None and any(is_task_id(stored.transactional_id) for stored in still_open):
        raise SinkError(
            f"query {query} has open transactions and no entry in __oncelog_sink, so its decision is not known: was "
            "the topic deleted? `oncelog txn commit` and `abort` end single transactions by their identity"
        )
    is_decided = register is not None and register.state is RegisterState.DECIDED
    listed = [transaction.stored for transaction in register.listed] if register is not None and is_decided else []
    to_commit = [stored for stored in listed if stored in still_open]
    ended = [stored for stored in listed if stored not in still_open]
    commits = [
        SavedTransaction(stored, True, f"epoch {_epoch(register)} is decided and lists it")
        for stored in (*to_commit, *ended[:MAX_ENDED])
    ]
    aborts = [
        SavedTransaction(stored, False, _why_abort(register, stored.transactional_id))
        for stored in sorted(still_open.difference(listed))
    ]
    return Lingering(query, [*commits, *aborts], max(0, len(ended) - MAX_ENDED))


def _epoch(register: Register | None) -> int:
    return -1 if register is None else register.epoch


def _why_abort(register: Register | None, transactional_id: str) -> str:
    if register is None or not is_task_id(transactional_id):
        return "the ledger does not have it: the query writes its rows again"
    if register.state is RegisterState.BEGUN:
        return f"epoch {register.epoch} is not decided: the query writes it again"
    return f"the decision about epoch {register.epoch} does not list it"
