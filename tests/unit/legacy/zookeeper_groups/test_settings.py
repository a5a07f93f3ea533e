"""The old consumer's keys."""

from __future__ import annotations

import pytest

from oncelog.client.errors import ConfigError
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage


def settings(**properties: str) -> ZooKeeperGroupSettings:
    return ZooKeeperGroupSettings.from_properties(
        "g", {key.replace("_", "."): text for key, text in properties.items()}
    )


def test_defaults_are_kafkas() -> None:
    result = settings()
    assert (result.session_timeout_ms, result.rebalance_backoff_ms, result.rebalance_max_retries) == (6000, 2000, 4)
    assert (result.storage, result.dual_commit, result.reset) == (Storage.ZOOKEEPER, False, "largest")
    assert (result.auto_commit, result.auto_commit_interval_ms) == (True, 60_000)


def test_dual_commit_is_the_default_with_kafka() -> None:
    assert settings(offsets_storage="kafka").dual_commit
    assert not settings(offsets_storage="kafka", dual_commit_enabled="false").dual_commit
    assert settings(dual_commit_enabled="true").dual_commit


def test_the_back_off_is_the_sync_time() -> None:
    assert settings(zookeeper_sync_time_ms="100").rebalance_backoff_ms == 100
    assert settings(zookeeper_sync_time_ms="100", rebalance_backoff_ms="7").rebalance_backoff_ms == 7


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rebalance.max.retries", "x"),
        ("rebalance.backoff.ms", "-1"),
        ("zookeeper.session.timeout.ms", "0"),
        ("offsets.storage", "disk"),
        ("auto.offset.reset", "none"),
        ("auto.commit.enable", "yes"),
        ("consumer.id", "a/b"),
        ("partition.assignment.strategy", "roundrobin"),
    ],
)
def test_a_value_that_is_none_of_its_keys_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=key):
        ZooKeeperGroupSettings.from_properties("g", {key: text})
