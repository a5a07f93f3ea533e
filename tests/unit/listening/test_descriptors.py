"""The share of data files is one for all brokers of a process, and neither they nor an embedding program lock clients
out."""

from __future__ import annotations

from weakref import WeakSet

import pytest

from oncelog.listening import descriptors

LIMIT = 1024


class Cache:
    """Files of one broker: as many are open as it may have, if it may."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def open_count(self) -> int:
        return self.count

    def shrink(self, most: int) -> None:
        self.count = min(self.count, most)


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: LIMIT)
    monkeypatch.setattr(descriptors, "_CACHES", WeakSet())
    monkeypatch.setattr(descriptors, "_is_our_process", False)


def test_three_brokers_share_what_one_may_have() -> None:
    caches = [Cache(LIMIT // 4), Cache(), Cache()]
    descriptors.add_cache(caches[0])
    assert descriptors.share_of_cache() == LIMIT // 4
    for cache in caches[1:]:
        descriptors.add_cache(cache)
    assert descriptors.share_of_cache() == LIMIT // 12
    assert caches[0].count == LIMIT // 12, "the first gives up what the others may have now"
    descriptors.remove_cache(caches[2])
    assert descriptors.share_of_cache() == LIMIT // 8


def test_open_files_take_no_place_of_a_connection_and_the_reserve_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_is_our_process", True)
    cache = Cache()
    descriptors.add_cache(cache)
    for_connections = descriptors.connection_bound()
    assert for_connections == LIMIT // 2
    for cache.count in (100, LIMIT // 4):
        assert descriptors.connection_bound() - cache.count == for_connections
    cache.count = LIMIT
    assert descriptors.connection_bound() == LIMIT - LIMIT // 4
    assert not descriptors.give_way(), "in a process of our own, files have their share"
    assert cache.count == LIMIT


def test_in_a_program_of_others_connections_may_take_nearly_all_and_files_give_way() -> None:
    assert descriptors.connection_bound() >= LIMIT - 32
    cache = Cache(100)
    descriptors.add_cache(cache)
    assert descriptors.give_way()
    assert cache.count == 50
    cache.count = 0
    assert not descriptors.give_way()
