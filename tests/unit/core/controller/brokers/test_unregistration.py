"""Brokers that an operator has unregistered: nothing counts on them, and what is known of their directory stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName
from oncelog.base.tree import Delete
from oncelog.core.controller.brokers.registration import Registration, register, unregister
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from oncelog.core.controller.outcomes import Refusal, Refused
from oncelog.core.controller.replicas.placement import check_replicas, place
from tests.unit.core.controller.cluster import applied, cluster, ids

TWO = BrokerId(2)


def without_two() -> ClusterImage:
    image = cluster(brokers=2)
    return applied(image, [Delete(layout.broker_path(TWO), 0)])


def joining(directory: str) -> Registration:
    return Registration(TWO, "elsewhere", 9092, "rack", "the-cluster", directory_id=directory)


def test_it_is_not_placed_on_and_cannot_be_named() -> None:
    image = without_two()
    assert {BrokerId(2)} <= set(place(image, ids()(), 0, 1, 2)[0])
    result = unregister(image, TWO)
    assert result.outcomes == [None]
    image = applied(image, result.operations)
    with pytest.raises(Refused):
        place(image, ids()(), 0, 1, 2)
    with pytest.raises(Refused, match="no such broker is registered"):
        check_replicas(image, (1, 2), None)
    (twice,) = unregister(image, TWO).outcomes
    assert isinstance(twice, Refusal)
    assert twice.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("broker_id", "refused"), [(1, ErrorCode.INVALID_REQUEST), (7, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
def test_one_that_runs_and_one_that_never_was_are_refused(broker_id: int, refused: ErrorCode) -> None:
    result = unregister(without_two(), broker_id)
    (outcome,) = result.outcomes
    assert isinstance(outcome, Refusal)
    assert outcome.error_code is refused
    assert not result.operations


def test_it_registers_again() -> None:
    image = without_two()
    image = applied(image, unregister(image, TWO).operations)
    image = applied(image, register(image, joining(""), now_ms=0))
    record = image.broker_records[TWO]
    assert (record.unregistered, record.rack, [str(endpoint) for endpoint in record.endpoints]) == (
        False,
        "rack",
        ["PLAINTEXT://elsewhere:9092"],
    )
    assert image.is_registered(TWO)


def test_an_empty_directory_of_its_id_is_not_taken_for_its_own() -> None:
    image = cluster(brokers=1)
    image = applied(image, register(image, joining("first"), now_ms=0))
    counted_on = PartitionImage(BrokerId(-1), LeaderEpoch(3), (BrokerId(1), TWO), (TWO,))
    topic = TopicImage(TopicName("t"), ids()(), (counted_on,))
    image = replace(applied(image, [Delete(layout.broker_path(TWO), 0)]), topics={topic.name: topic})
    image = applied(image, unregister(image, TWO).operations)
    image = applied(image, register(image, joining("another"), now_ms=0))
    assert image.brokers[TWO].fenced
    assert image.brokers[TWO].is_new_directory
