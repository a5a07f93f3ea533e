"""AlterClientQuotas, versions 0 and 1 (KIP-546): sets and removes quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.client_quotas import (
    QuotaAlteration,
    QuotaEntity,
    alter_client_quotas,
    duplicate_refusal,
    quota_entity,
)
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed, outcome_error
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "an entity twice or empty, an entity type, key or value that cannot be, "
    "ip beside others",
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster's configs",
}

COMMIT_BYTES: Final = 128 * 1024
"""Names and values of one commit, before they are encoded: a node's name takes three times as much at most."""
_ALTERATION_BYTES: Final = 256


def handle(request: AlterClientQuotasRequest, context: Context) -> Steps[AlterClientQuotasResponse]:
    """Change what can be changed; one outcome for each entity. An entity named twice is refused, and what was said of
    it first is in force, as in Apache Kafka."""
    if not context.allows_cluster(Operation.ALTER_CONFIGS):
        return AlterClientQuotasResponse(entries=[_denied(entry) for entry in request.entries])
    outcomes: dict[QuotaEntity, Refusal | None] = {}
    alterations = []
    for entry in request.entries:
        entity = quota_entity([(each.entity_type, each.entity_name) for each in entry.entity])
        keys = [change.key for change in entry.ops]
        if entity in outcomes or len(set(keys)) < len(keys):
            outcomes[entity] = duplicate_refusal(entity)
            continue
        outcomes[entity] = None
        changes = [(change.key, None if change.remove else change.value) for change in entry.ops]
        alterations.append(QuotaAlteration(entity, changes))
    for some in _commits(alterations):
        decided = yield from committed(
            lambda some=some: alter_client_quotas(context.cluster.image, some),  # type: ignore[misc]  # bound now
            dry_run=request.validate_only,
        )
        for alteration, outcome in zip(some, decided, strict=True):
            if outcomes[alteration.entity] is None:
                outcomes[alteration.entity] = outcome
    return AlterClientQuotasResponse(entries=[_result(entity, outcome) for entity, outcome in outcomes.items()])


def _commits(alterations: Sequence[QuotaAlteration]) -> Iterator[list[QuotaAlteration]]:
    """The alterations in parts, each of which a commit can hold."""
    some: list[QuotaAlteration] = []
    size_bytes = 0
    for alteration in alterations:
        texts = [name or "" for _, name in alteration.entity] + [key for key, _ in alteration.changes]
        weight = _ALTERATION_BYTES + sum(map(len, texts))
        if some and size_bytes + weight > COMMIT_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(alteration)
        size_bytes += weight
    if some:
        yield some


def _denied(entry: EntryData) -> EntryResult:
    return EntryResult(error_code=CLUSTER_DENIED.error_code, error_message=CLUSTER_DENIED.message, entity=entry.entity)


def _result(entity: QuotaEntity, outcome: Refusal | None) -> EntryResult:
    error_code, message = outcome_error(outcome)
    return EntryResult(
        error_code=error_code,
        error_message=message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
