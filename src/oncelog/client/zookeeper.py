"""Consumers that coordinate through ZooKeeper, as Kafka's did from 0.8 to 1.1, on any cluster that supports it.

The public name of ``legacy.zookeeper_groups``. kazoo is needed (``oncelog[cluster]``).
"""

from __future__ import annotations

from oncelog.legacy.zookeeper_groups.consumer import ZooKeeperConsumer
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription

__all__ = ["Subscription", "ZooKeeperConsumer"]
