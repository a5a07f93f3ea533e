"""Feature levels (KIP-584): the supported range, the levels of a new cluster, and their changes.

Only real behavior counts as supported. ``metadata.version`` exists because Apache Kafka's tools take it for the
cluster's release; nothing here depends on it. Level 0 means not finalized. Clients accept finalized levels only while
the epoch, the version of the node with the levels, does not fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage, FeatureRange
from oncelog.core.controller.outcomes import Decided, Refusal

METADATA_VERSION: Final = "metadata.version"
"""33 is 4.4-IV2."""

TRANSACTION_VERSION: Final = "transaction.version"
"""1: coordinator records may have tagged fields; 2: Transactions V2 (KIP-890)."""

GROUP_VERSION: Final = "group.version"
"""1: groups may use the consumer protocol (KIP-848)."""

SHARE_VERSION: Final = "share.version"
"""1: there are share groups (KIP-932); 2: they have dead letters (KIP-1191)."""

SUPPORTED_FEATURES: Final = {
    GROUP_VERSION: FeatureRange(0, 1),
    METADATA_VERSION: FeatureRange(7, 33),
    SHARE_VERSION: FeatureRange(0, 2),
    TRANSACTION_VERSION: FeatureRange(0, 2),
}

_EARLIER_FEATURES: Final = {name: SUPPORTED_FEATURES[name] for name in (METADATA_VERSION, TRANSACTION_VERSION)}
"""Features of brokers whose registrations name none."""
_DISABLED: Final = FeatureRange(0, 0)

INITIAL_FEATURES: Final = {GROUP_VERSION: 1, METADATA_VERSION: 33, SHARE_VERSION: 2, TRANSACTION_VERSION: 2}
"""The levels of a new cluster. An existing one keeps its own until they are updated."""


class UpgradeType(IntEnum):
    """The permitted direction of a change, with the codes of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """``upgrade_type`` is the code in the request, valid or not."""

    feature: str
    level: int
    upgrade_type: int


def update_features(
    image: ClusterImage, broker_id: BrokerId, updates: Sequence[FeatureUpdate]
) -> Decided[FeatureUpdate]:
    """Set all levels or none; the only outcome of a failure is the first refusal."""
    levels = dict(image.features)
    for update in updates:
        reason = _refusal(levels.get(update.feature, 0), broker_id, update, image.brokers.values())
        if reason is not None:
            message = "The update failed for all features since the following feature had an error: " + reason
            return Decided([], [Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)])
        levels[update.feature] = update.level
    # Level 0 means not finalized, and is not stored.
    levels = {feature: level for feature, level in levels.items() if level > 0}
    if levels == image.features:
        return Decided([], list(updates))
    version = image.versions[layout.FEATURES]
    return Decided([Set(layout.FEATURES, layout.features_value(levels), version)], list(updates))


def unsupported_feature(features: Mapping[str, int], supported: Mapping[str, FeatureRange]) -> str | None:
    """A finalized feature that a broker cannot join with."""
    for feature, level in features.items():
        low, high = supported.get(feature, _DISABLED)
        if not low <= level <= high:
            return f"{feature} is finalized at level {level}, and this version of oncelog supports {low} to {high}"
    return None


def _refusal(level_now: int, broker_id: BrokerId, update: FeatureUpdate, brokers: Iterable[BrokerImage]) -> str | None:
    feature, level, upgrade_type = update
    start = f"Invalid update version {level} for feature {feature}. "
    if upgrade_type not in tuple(UpgradeType):
        return start + "The controller does not support the given upgrade type."
    if level < 0:
        return start + "A feature version cannot be less than 0."
    supported = SUPPORTED_FEATURES.get(feature)
    if supported is None:
        return start + (
            f"Local controller {broker_id} does not support this feature."
            if level > 0
            else f"Feature {feature} not found."
        )
    if not supported.low <= level <= supported.high:
        return start + f"Local controller {broker_id} only supports versions {supported.low}-{supported.high}"
    for broker in brokers:
        low, high = (broker.features or _EARLIER_FEATURES).get(feature, _DISABLED)
        if not low <= level <= high:
            supports = f"only supports versions {low}-{high}" if high else "does not support this feature."
            return start + f"Broker {broker.broker_id} {supports}"
    if level < level_now and upgrade_type == UpgradeType.UPGRADE:
        return (
            start + "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > level_now and upgrade_type != UpgradeType.UPGRADE:
        return start + "Can't downgrade to a newer version."
    if level < level_now and feature == METADATA_VERSION:
        return f"Unsupported {feature} downgrade from {level_now} to {level}. " + (
            "Unsafe metadata downgrade is not supported in this version."
            if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
    return None
