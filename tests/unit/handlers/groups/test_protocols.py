from __future__ import annotations

import pytest

from oncelog.core.controller.brokers.features import FeatureUpdate, UpgradeType, update_features
from oncelog.handlers.groups.requests import serves_consumer_protocol
from tests.unit.handlers.cluster_broker import ClusterBroker


@pytest.mark.parametrize(
    ("protocols", "level", "is_served"),
    [("classic,consumer,streams", 1, True), ("classic,consumer", 0, False), ("classic", 1, False)],
)
def test_the_consumer_protocol_needs_the_feature_and_the_configuration(
    protocols: str, level: int, is_served: bool
) -> None:
    broker = ClusterBroker({"group.coordinator.rebalance.protocols": protocols})
    update = FeatureUpdate("group.version", level, UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE)
    operations = update_features(broker.image, broker.broker_id, [update]).operations
    if operations:
        broker.commit(operations)
    assert serves_consumer_protocol(broker.context(68, 1)) is is_served
