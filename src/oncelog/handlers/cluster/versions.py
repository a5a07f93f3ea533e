"""Versions of the protocol, and feature levels.

ApiVersions, versions 0 to 5 (KIP-35, KIP-511, KIP-584), returns the version range of every API, from the registry, and
the feature levels. A request in an unknown version of ApiVersions is answered in version 0, with UNSUPPORTED_VERSION
and the known versions, so that the client asks again. From version 5 on, a client names the broker and cluster that it
expects: any other answers REBOOTSTRAP_REQUIRED (KIP-1242).

UpdateFeatures, versions 0 to 2 (KIP-584, KIP-1022), sets the finalized levels of features, all or none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.security import ANONYMOUS
from oncelog.core.controller.brokers.features import SUPPORTED_FEATURES, FeatureUpdate, update_features
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed, with_outcome
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.registry import APIS, BY_KEY
from oncelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from oncelog.wire.messages.update_features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not know this version of ApiVersions",
    ErrorCode.INVALID_REQUEST: "the client's software name or version is empty or has odd characters (version 3); or "
    "only one of cluster id and broker id is given (version 5)",
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client expects another broker or another cluster at this address (version 5)",
}

_SOFTWARE_SINCE: Final = 3
_LEVEL_ZERO_SINCE: Final = 4
_EXPECTED_BROKER_SINCE: Final = 5
_NO_BROKER: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def describe(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    if not is_valid(request, context.version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _expects_another_broker(request, context):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = context.cluster.image
    return ApiVersionsResponse(
        # Version ranges grow only if the older protocol is enabled.
        api_keys=_with_legacy() if context.cluster.config.get("oncelog.legacy.protocol") else _API_VERSIONS,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.low, max_version=levels.high)
            for name, levels in sorted(SUPPORTED_FEATURES.items())
            if levels.low > 0 or context.version >= _LEVEL_ZERO_SINCE  # older clients refuse a level of 0
        ],
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


def is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """True if what the request says of the client and the expected broker is well-formed."""
    if version >= _EXPECTED_BROKER_SINCE and (request.cluster_id is None) != (request.node_id == _NO_BROKER):
        return False
    return version < _SOFTWARE_SINCE or bool(
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )


def _expects_another_broker(request: ApiVersionsRequest, context: Context) -> bool:
    if context.version < _EXPECTED_BROKER_SINCE or request.cluster_id is None:
        return False
    if context.security_protocol.has_sasl and context.principal == ANONYMOUS:
        # Before the login everything matches, as in Apache Kafka; clients ask again after it.
        return False
    cluster = context.cluster
    return request.cluster_id != cluster.cluster_id or request.node_id != cluster.broker_id


def unsupported_version() -> ApiVersionsResponse:
    """The answer to an unknown version of ApiVersions, encoded in version 0."""
    api = BY_KEY[ApiVersionsRequest.API_KEY]
    version = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[version])


def _with_legacy() -> list[ApiVersion]:
    from oncelog.handlers.legacy_registry import LEGACY_BY_KEY

    return [
        ApiVersion(
            api_key=version.api_key,
            min_version=LEGACY_BY_KEY[version.api_key].min_version
            if version.api_key in LEGACY_BY_KEY
            else version.min_version,
            max_version=version.max_version,
        )
        for version in _API_VERSIONS
    ]


_API_VERSIONS: Final = [
    ApiVersion(
        api_key=api.key,
        min_version=api.min_version if api.advertised_min_version is None else api.advertised_min_version,
        max_version=api.max_version,
    )
    for api in APIS
]
"""Shared by all responses: do not change."""


UPDATE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_UPDATE_VERSION: "an unknown feature, a level that is not supported, or a downgrade not asked for",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}

_LAST_WITH_RESULTS: Final = 1


def update(request: UpdateFeaturesRequest, context: Context) -> Steps[UpdateFeaturesResponse]:
    if not context.allows_cluster(Operation.ALTER):
        return with_outcome(UpdateFeaturesResponse(), CLUSTER_DENIED)
    # Version 0 can only raise levels, whatever it says of downgrades, as in Apache Kafka.
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    ]
    cluster = context.cluster
    outcomes = yield from committed(
        lambda: update_features(cluster.image, cluster.broker_id, updates), dry_run=request.validate_only
    )
    refusal = next((outcome for outcome in outcomes if isinstance(outcome, Refusal)), None)
    if refusal is not None:
        return with_outcome(UpdateFeaturesResponse(), refusal)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message="NONE") for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results if context.version <= _LAST_WITH_RESULTS else [])
