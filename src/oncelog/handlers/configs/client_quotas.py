"""Quotas of users, client ids and addresses (KIP-546): DescribeClientQuotas and AlterClientQuotas, versions 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.client_quotas import (
    QuotaAlteration,
    QuotaEntity,
    alter_client_quotas,
    duplicate_refusal,
    matching_quotas,
    quota_entity,
    quota_filter,
)
from oncelog.core.controller.outcomes import Refusal, Refused
from oncelog.core.controller.topics.commit_split import batches
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed_in_batches, with_outcome
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages import describe_client_quotas as described
from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryResult,
)
from oncelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "an entity type twice or empty, a match that its type does not have, ip beside others",
    ErrorCode.UNSUPPORTED_VERSION: "an entity type other than user, client-id and ip",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster's configs",
}


def describe(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """The entities that match, with their own quotas, not inherited ones."""
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return _refused(Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    components = [(component.entity_type, component.match_type, component.match) for component in request.components]
    try:
        entity_filter = quota_filter(components, strict=request.strict)
    except Refused as refused:
        return _refused(refused.refusal)
    matches = matching_quotas(context.cluster.image, entity_filter)
    return DescribeClientQuotasResponse(entries=[_entry(entity, quotas) for entity, quotas in matches])


def _refused(refusal: Refusal) -> DescribeClientQuotasResponse:
    return with_outcome(DescribeClientQuotasResponse(entries=None), refusal)


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> described.EntryData:
    return described.EntryData(
        entity=[described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[described.ValueData(key=key, value=value) for key, value in quotas.items()],
    )


ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "an entity twice or empty, an entity type, key or value that cannot be, "
    "ip beside others",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster's configs",
}

_ENTITIES_PER_COMMIT: Final = 1000
_ENTITY_BYTES: Final = 512
"""Bytes of an entity's nodes beside its names and keys."""


def alter(request: AlterClientQuotasRequest, context: Context) -> Steps[AlterClientQuotasResponse]:
    if not context.allows_cluster(Operation.ALTER_CONFIGS):
        denied = [with_outcome(EntryResult(entity=entry.entity), CLUSTER_DENIED) for entry in request.entries]
        return AlterClientQuotasResponse(entries=denied)
    outcomes: dict[QuotaEntity, Refusal | None] = {}
    alterations = []
    for entry in request.entries:
        entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
        keys = [change.key for change in entry.ops]
        if entity in outcomes or len(set(keys)) < len(keys):
            # The entity is refused, but its first entry stays in force, as in Apache Kafka.
            outcomes[entity] = duplicate_refusal(entity)
            continue
        outcomes[entity] = None
        changes = [(change.key, None if change.remove else change.value) for change in entry.ops]
        alterations.append(QuotaAlteration(entity, changes))
    decided = yield from committed_in_batches(
        batches(alterations, _alteration_bytes, _ENTITIES_PER_COMMIT),
        lambda batch: alter_client_quotas(context.cluster.image, batch),
        dry_run=request.validate_only,
    )
    for alteration, outcome in zip(alterations, decided, strict=True):
        if outcomes[alteration.entity] is None:
            outcomes[alteration.entity] = outcome
    return AlterClientQuotasResponse(entries=[_result(entity, outcome) for entity, outcome in outcomes.items()])


def _alteration_bytes(alteration: QuotaAlteration) -> int:
    texts = [name or "" for _, name in alteration.entity] + [key for key, _ in alteration.changes]
    return _ENTITY_BYTES + 2 * sum(map(len, texts))  # node names are encoded; the bound is far below the tree's


def _result(entity: QuotaEntity, outcome: Refusal | None) -> EntryResult:
    result = EntryResult(entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity])
    return with_outcome(result, outcome)
