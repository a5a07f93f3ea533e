"""ListConfigResources, versions 0 to 1 (KIP-714, KIP-1142): the resources that have configs to describe. Version 0
lists client metrics subscriptions only; version 1 the requested types, or all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import ConfigImage
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages import list_config_resources as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "an unknown resource type",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to see the cluster's configs",
}

_TYPES_SINCE: Final = 1


def handle(request: wire.ListConfigResourcesRequest, context: Context) -> wire.ListConfigResourcesResponse:
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.version < _TYPES_SINCE:
        types = [ConfigResourceType.CLIENT_METRICS]
    elif all(resource_type in tuple(ConfigResourceType) for resource_type in request.resource_types):
        requested = set(request.resource_types)
        types = [
            resource_type
            for resource_type in reversed(ConfigResourceType)
            if not requested or resource_type in requested
        ]
    else:
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return wire.ListConfigResourcesResponse(
        config_resources=[
            wire.ConfigResource(resource_name=name, resource_type=type_)
            for type_ in types
            for name in _names(context.cluster.image, type_)
        ]
    )


def _names(image: ClusterImage, resource_type: ConfigResourceType) -> Iterable[str]:
    if resource_type is ConfigResourceType.TOPIC:
        return sorted(image.topics)
    if resource_type is ConfigResourceType.GROUP:
        return _configured(image.group_configs)
    if resource_type is ConfigResourceType.CLIENT_METRICS:
        return _configured(image.client_metrics_configs)
    return [str(broker_id) for broker_id in sorted(image.brokers)]


def _configured(entities: Mapping[str, ConfigImage]) -> list[str]:
    """The resources with a config: a node without configs is left over from a removal."""
    return sorted(name for name, entity in entities.items() if entity.configs)
