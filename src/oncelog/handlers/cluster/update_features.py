"""UpdateFeatures, versions 0 to 2 (KIP-584, KIP-1022): sets the finalized levels of features, all or none.

What version 0 says of downgrades is not heard, as in Apache Kafka: it can only raise levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.brokers.features import FeatureUpdate, update_features
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import committed
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_UPDATE_VERSION: "an unknown feature, a level that is not supported, or a downgrade not asked for",
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}

_LAST_WITH_RESULTS: Final = 1


def handle(request: UpdateFeaturesRequest, context: Context) -> Steps[UpdateFeaturesResponse]:
    """Change the levels, or only say whether they could be (``validate_only``)."""
    if not context.allows_cluster(Operation.ALTER):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Cluster authorization failed."
        )
    return (yield from _update(request, context))


def _update(request: UpdateFeaturesRequest, context: Context) -> Steps[UpdateFeaturesResponse]:
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
        return UpdateFeaturesResponse(error_code=refusal.error_code, error_message=refusal.message)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message="NONE") for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results if context.version <= _LAST_WITH_RESULTS else [])
