"""Suspicions that a broker is frozen: who observes whom, what two that agree commit, and when it would help."""

from __future__ import annotations

import pytest

from oncelog.base.ids import BrokerId
from oncelog.base.tree import Check, Create, Delete, Set
from oncelog.core.controller.brokers.suspicions import (
    NEIGHBOURS,
    end_frozen,
    observers_of,
    suspect,
    suspected_by,
    withdraw,
    would_help,
)
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.topics.changes import NewTopic
from tests.unit.core.controller.cluster import applied, cluster

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def suspecting(image: ClusterImage, suspect_id: BrokerId, observer: BrokerId) -> ClusterImage:
    return applied(image, suspect(image, image.brokers[suspect_id], observer, 5))


def test_all_observe_each_other_in_a_small_cluster() -> None:
    assert observers_of(cluster(3), TWO) == {1, 3}
    assert observers_of(cluster(1), ONE) == set()


def test_a_large_cluster_is_observed_by_the_controller_and_the_neighbours() -> None:
    image = cluster(9)
    assert image.controller_id == ONE
    assert observers_of(image, BrokerId(6)) == {1, 3, 4, 5}
    assert observers_of(image, ONE) == {7, 8, 9}
    watched = [sum(observer in observers_of(image, other) for other in image.brokers) for observer in image.brokers]
    assert watched == [8] + [NEIGHBOURS] * 8


def test_a_suspicion_is_an_ephemeral_node_that_is_renewed_and_withdrawn() -> None:
    image = cluster(3)
    (created,) = suspect(image, image.brokers[ONE], TWO, 5)
    assert isinstance(created, Create)
    assert created.ephemeral
    image = applied(image, [created])
    assert list(suspected_by(image, image.brokers[ONE])) == [TWO]
    (renewed,) = suspect(image, image.brokers[ONE], TWO, 5)
    assert isinstance(renewed, Set)
    image = applied(image, [renewed])
    assert image.suspicions[ONE, TWO].version == 1
    assert image.suspicions[ONE, TWO].since_ms == 5
    image = applied(image, withdraw(image, ONE, TWO))
    assert image.suspicions == {}
    assert withdraw(image, ONE, TWO) == []


def test_a_suspicion_of_an_earlier_registration_does_not_count() -> None:
    image = suspecting(cluster(3), ONE, TWO)
    again = image.brokers[ONE]._replace(epoch=image.brokers[ONE].epoch + 1)
    assert list(suspected_by(image, again)) == []


def test_the_end_of_a_registration_fails_when_the_other_observer_has_withdrawn() -> None:
    image = suspecting(cluster(3), ONE, TWO)
    operations = end_frozen(image, image.brokers[ONE], [TWO])
    assert operations[0] == Check(layout.suspicion_path(ONE, TWO), 0)
    assert isinstance(operations[-1], Delete)
    assert ONE not in applied(image, operations).brokers


def test_a_registration_that_is_over_is_not_ended_again() -> None:
    image = cluster(3)
    gone = image.brokers[ONE]._replace(epoch=77)
    assert end_frozen(image, gone, []) == []


def test_a_tree_of_an_earlier_version_holds_no_suspicions() -> None:
    image = cluster(3)
    earlier = applied(image, [Delete(layout.SUSPICIONS, image.versions[layout.SUSPICIONS])])
    assert suspect(earlier, earlier.brokers[ONE], TWO, 5) == []


@pytest.mark.parametrize(("replicas", "helps"), [((2, 3), True), ((2,), False), ((3, 2), True), ((1, 3), False)])
def test_it_helps_where_another_replica_can_lead_or_acks_all_waits(replicas: tuple[int, ...], helps: bool) -> None:
    topic = NewTopic("t", assignments=[(0, replicas)])
    assert would_help(cluster(3, [topic]), TWO) is helps


def test_it_always_helps_to_replace_the_controller() -> None:
    assert would_help(cluster(2), ONE)


def test_a_suspicion_of_an_unreadable_name_is_a_damaged_fact() -> None:
    with pytest.raises(layout.DamagedFact, match="one\\.2"):
        layout.suspicion_key(f"{layout.SUSPICIONS}/one.2")


def test_a_registration_says_after_which_silence_it_may_be_ended() -> None:
    broker = cluster(1).brokers[ONE]._replace(freeze_timeout_ms=1_500)
    for registered in (broker, broker._replace(freeze_timeout_ms=0)):
        value = layout.broker_value(registered, now_ms=0)
        assert layout.read_broker(layout.broker_path(ONE), value, 0).freeze_timeout_ms == registered.freeze_timeout_ms


def test_a_suspicion_of_an_earlier_version_has_no_time() -> None:
    image = cluster(3)
    value = b'{"version": 1, "epoch": %d}' % image.brokers[ONE].epoch
    image = applied(image, [Create(layout.suspicion_path(ONE, TWO), value, ephemeral=True)])
    assert list(suspected_by(image, image.brokers[ONE])) == [TWO]
    assert image.suspicions[ONE, TWO].since_ms == -1
