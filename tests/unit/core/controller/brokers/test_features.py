from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import Set
from oncelog.core.controller.brokers.features import (
    INITIAL_FEATURES,
    SUPPORTED_FEATURES,
    FeatureUpdate,
    update_features,
)
from oncelog.core.controller.brokers.registration import Registration, RegistrationRefused, register
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Change, ClusterImage
from oncelog.core.controller.image.model import BrokerImage, FeatureRange
from oncelog.core.controller.outcomes import Refusal
from tests.unit.core.controller.cluster import applied, cluster

START = "The update failed for all features since the following feature had an error: "


def at_level(level: int) -> ClusterImage:
    value = layout.features_value({"metadata.version": level})
    return cluster().apply([Change(layout.FEATURES, value, 3)]).image


def test_a_cluster_begins_with_levels_that_are_supported() -> None:
    image = cluster()
    assert (image.features, image.features_epoch) == (INITIAL_FEATURES, 0)
    assert all(
        SUPPORTED_FEATURES[name].low <= level <= SUPPORTED_FEATURES[name].high for name, level in image.features.items()
    )


def test_the_epoch_rises_with_each_change() -> None:
    image = at_level(20)
    decided = update_features(image, BrokerId(1), [FeatureUpdate("metadata.version", 25, 1)])
    assert isinstance(decided.operations[0], Set)
    later = applied(image, decided.operations)
    assert (later.features, later.features_epoch) == ({"metadata.version": 25}, 4)


def test_the_level_it_has_is_no_change() -> None:
    decided = update_features(at_level(20), BrokerId(1), [FeatureUpdate("metadata.version", 20, 1)])
    assert decided.operations == []


@pytest.mark.parametrize(("upgrade_type", "level"), [(2, 1), (2, 0), (3, 1), (3, 0)])
def test_transactions_may_go_back_to_how_they_were_done_before_and_forth_again(upgrade_type: int, level: int) -> None:
    image = cluster()
    assert image.features["transaction.version"] == 2
    back = update_features(image, BrokerId(1), [FeatureUpdate("transaction.version", level, upgrade_type)])
    image = applied(image, back.operations)
    assert (image.features.get("transaction.version", 0), image.features_epoch) == (level, 1)
    forth = update_features(image, BrokerId(1), [FeatureUpdate("transaction.version", 2, 1)])
    image = applied(image, forth.operations)
    assert (image.features["transaction.version"], image.features_epoch) == (2, 2)


@pytest.mark.parametrize("upgrade_type", [2, 3])
def test_the_consumer_protocol_can_be_switched_off_and_on(upgrade_type: int) -> None:
    image = cluster()
    assert image.features["group.version"] == 1
    off = update_features(image, BrokerId(1), [FeatureUpdate("group.version", 0, upgrade_type)])
    image = applied(image, off.operations)
    assert "group.version" not in image.features
    on = update_features(image, BrokerId(1), [FeatureUpdate("group.version", 1, 1)])
    assert applied(image, on.operations).features["group.version"] == 1


def test_a_cluster_from_before_a_feature_has_it_at_level_0() -> None:
    assert "group.version" not in at_level(30).features


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            FeatureUpdate("metadata.version", 29, 1),
            "Invalid update version 29 for feature metadata.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            FeatureUpdate("metadata.version", 29, 2),
            "Unsupported metadata.version downgrade from 33 to 29. Refusing to perform the requested downgrade because "
            "it might delete metadata information.",
        ),
        (
            FeatureUpdate("metadata.version", 10, 3),
            "Unsupported metadata.version downgrade from 33 to 10. Unsafe metadata downgrade is not supported in this "
            "version.",
        ),
        (
            FeatureUpdate("metadata.version", 99, 1),
            "Invalid update version 99 for feature metadata.version. Local controller 1 only supports versions 7-33",
        ),
        (
            FeatureUpdate("metadata.version", -1, 2),
            "Invalid update version -1 for feature metadata.version. A feature version cannot be less than 0.",
        ),
        (
            FeatureUpdate("metadata.version", 33, 7),
            "Invalid update version 33 for feature metadata.version. The controller does not support the given upgrade "
            "type.",
        ),
        (
            FeatureUpdate("transaction.version", 1, 1),
            "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            FeatureUpdate("transaction.version", 3, 1),
            "Invalid update version 3 for feature transaction.version. Local controller 1 only supports versions 0-2",
        ),
        (
            FeatureUpdate("group.version", 0, 1),
            "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            FeatureUpdate("group.version", 2, 1),
            "Invalid update version 2 for feature group.version. Local controller 1 only supports versions 0-1",
        ),
        (
            FeatureUpdate("foo", 1, 1),
            "Invalid update version 1 for feature foo. Local controller 1 does not support this feature.",
        ),
        (FeatureUpdate("foo", 0, 2), "Invalid update version 0 for feature foo. Feature foo not found."),
    ],
)
def test_one_refusal_refuses_all(update: FeatureUpdate, message: str) -> None:
    fine = FeatureUpdate("metadata.version", 33, 1)
    decided = update_features(cluster(), BrokerId(1), [fine, update])
    assert decided.operations == []
    assert decided.outcomes == [Refusal(ErrorCode.INVALID_UPDATE_VERSION, START + message)]


def joined(image: ClusterImage, broker_id: int, features: dict[str, FeatureRange]) -> ClusterImage:
    who = Registration(
        BrokerId(broker_id), "h", 9092, None, "the-cluster", directory_id=f"d{broker_id}", features=features
    )
    return applied(image, register(image, who, 0))


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"transaction.version": FeatureRange(0, 2)}, "Broker 7 does not support this feature."),
        ({}, "Broker 7 does not support this feature."),
        ({"group.version": FeatureRange(2, 3)}, "Broker 7 only supports versions 2-3"),
    ],
)
def test_a_feature_does_not_rise_above_what_a_registered_broker_supports(
    features: dict[str, FeatureRange], reason: str
) -> None:
    image = applied(
        cluster(), update_features(cluster(), BrokerId(1), [FeatureUpdate("group.version", 0, 2)]).operations
    )
    value = layout.broker_value(BrokerImage(BrokerId(7), "h", 9092, None, 9, features=features), 0)
    image = image.apply([Change(layout.broker_path(BrokerId(7)), value, 0)]).image
    (refusal,) = update_features(image, BrokerId(1), [FeatureUpdate("group.version", 1, 1)]).outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.message == f"{START}Invalid update version 1 for feature group.version. {reason}"
    levels = [FeatureUpdate("transaction.version", 1, 2)]
    assert update_features(image, BrokerId(1), levels).operations or "group.version" in features


def test_a_broker_that_lacks_a_finalized_feature_cannot_join() -> None:
    supported = {**SUPPORTED_FEATURES, "group.version": FeatureRange(0, 0)}
    with pytest.raises(RegistrationRefused, match=r"group\.version is finalized at level 1"):
        joined(cluster(), 7, supported)
    assert joined(cluster(), 7, SUPPORTED_FEATURES).brokers[BrokerId(7)].features == SUPPORTED_FEATURES
