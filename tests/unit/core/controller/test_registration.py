from __future__ import annotations

from oncelog.base.ids import BrokerId
from oncelog.base.tree import Delete
from oncelog.core.controller import layout
from oncelog.core.controller.image import ClusterImage
from oncelog.core.controller.registration import Registration, register
from oncelog.core.controller.resources import ALL_BROKERS, ConfigResourceType, Resource, current, write_configs
from tests.unit.core.controller.cluster import applied, cluster

BROKER = Resource(ConfigResourceType.BROKER, "1")


def joined(image: ClusterImage, min_insync_replicas: int) -> ClusterImage:
    """The image after broker 1, gone before, has joined again."""
    left = applied(image, [Delete(layout.broker_path(BrokerId(1)), image.brokers[BrokerId(1)].version)])
    return applied(left, register(left, Registration(BrokerId(1), "h", 1, None, "c", min_insync_replicas), now_ms=0))


def setting(image: ClusterImage, resource: Resource, **configs: str) -> ClusterImage:
    """The image where ``resource`` sets exactly ``configs``, as an earlier version may have written it."""
    named = {key.replace("_", "."): text for key, text in configs.items()}
    return applied(image, [write_configs(current(image, resource), named)])


def test_the_first_broker_says_min_insync_replicas_for_all() -> None:
    image = cluster()
    assert current(image, ALL_BROKERS).configs == {"min.insync.replicas": "1"}
    assert current(joined(image, 3), ALL_BROKERS).configs == {"min.insync.replicas": "1"}


def test_a_cluster_of_an_earlier_version_gets_what_was_set_for_the_broker_that_joins() -> None:
    image = setting(
        setting(cluster(), ALL_BROKERS, log_retention_ms="5"), BROKER, min_insync_replicas="2", log_roll_ms="7"
    )
    image = joined(image, 1)
    assert current(image, ALL_BROKERS).configs == {"log.retention.ms": "5", "min.insync.replicas": "2"}
    assert current(image, BROKER).configs == {"log.roll.ms": "7"}


def test_a_cluster_of_an_earlier_version_gets_what_the_broker_is_configured_with() -> None:
    image = joined(setting(cluster(), ALL_BROKERS, log_retention_ms="5"), 2)
    assert current(image, ALL_BROKERS).configs == {"log.retention.ms": "5", "min.insync.replicas": "2"}
