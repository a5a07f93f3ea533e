"""DescribeClientQuotas, versions 0 and 1 (KIP-546): the quotas set for users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.client_quotas import QuotaEntity, found_quotas, quota_filter
from oncelog.core.controller.outcomes import Refusal, Refused
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "an entity type twice or empty, a match that its type does not have, ip beside others",
    ErrorCode.UNSUPPORTED_VERSION: "an entity type other than user, client-id and ip",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster's configs",
}


def handle(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """The entities that the filter matches, with their quotas; not those that quotas are inherited by."""
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return _refused(Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = quota_filter(components, strict=request.strict)
    except Refused as refused:
        return _refused(refused.refusal)
    found = found_quotas(context.cluster.image, wanted)
    return DescribeClientQuotasResponse(entries=[_entry(entity, quotas) for entity, quotas in found])


def _refused(refusal: Refusal) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=refusal.error_code, error_message=refusal.message, entries=None)


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
