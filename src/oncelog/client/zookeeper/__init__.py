"""Consumers that share their work through ZooKeeper, as Kafka's did from 0.8 to 1.1, on any cluster that works with it.

``ZooKeeperConsumer`` is one of them. kazoo is needed (``oncelog[cluster]``).
"""

from __future__ import annotations

from oncelog.client.zookeeper.consumer import ZooKeeperConsumer

__all__ = ["ZooKeeperConsumer"]
