from __future__ import annotations

import pytest

from oncelog.base.ids import BrokerId
from oncelog.base.units import INT64_MAX
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Change, ClusterImage
from oncelog.core.controller.producer_ids import BLOCK_SIZE, ProducerIds, ProducerIdsExhausted, next_block
from tests.unit.core.controller.cluster import applied, cluster


def take_block(image: ClusterImage) -> tuple[ClusterImage, int]:
    operation, first = next_block(image, BrokerId(1))
    return applied(image, [operation]), first


def test_blocks_follow_each_other_and_are_apache_kafkas_json() -> None:
    image, first = take_block(cluster())
    assert (first, image.producer_id_block) == (0, (0, 999))
    image, second = take_block(image)
    assert second == 1000
    operation, _ = next_block(image, BrokerId(1))
    assert operation.value == b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'  # type: ignore[union-attr]  # a Set


def test_ids_are_given_once_each_and_the_next_block_is_asked_for_in_time() -> None:
    ids = ProducerIds()
    assert ids.take() is None
    assert ids.wants_block
    ids.block_requested()
    assert not ids.wants_block
    ids.granted(0)
    given = []
    for _ in range(900):
        assert not ids.wants_block
        given.append(ids.take())
    assert ids.wants_block
    ids.block_requested()
    given += [ids.take() for _ in range(50)]
    ids.granted(5000)
    assert not ids.wants_block, "one block ahead is enough"
    given += [ids.take() for _ in range(51)]
    assert given == [*range(1000), 5000]


def test_without_a_block_there_is_no_id_and_a_failure_asks_again() -> None:
    ids = ProducerIds()
    ids.block_requested()
    ids.failed()
    assert ids.wants_block
    ids.block_requested()
    ids.granted(7000)
    assert ids.take() == 7000


def test_the_last_ids_are_not_overrun() -> None:
    last = INT64_MAX - BLOCK_SIZE
    value = layout.producer_id_block_value(BrokerId(1), 0, last)
    image = cluster().apply([Change(layout.PRODUCER_ID_BLOCK, value, 0)]).image
    with pytest.raises(ProducerIdsExhausted):
        next_block(image, BrokerId(1))
