"""Lists, describes and resets groups that keep their members or offsets in ZooKeeper, and moves their offsets to Kafka.

The public name of ``legacy.zookeeper_groups.administration``.
"""

from __future__ import annotations

from oncelog.legacy.zookeeper_groups.administration import (
    EMPTY,
    RUNNING,
    MoveRow,
    ZooKeeperGroup,
    ZooKeeperGroupRow,
    ZooKeeperMemberRow,
    cluster_client,
    describe_zookeeper_group,
    execute_zookeeper_reset,
    list_zookeeper_groups,
    move_offsets,
    plan_zookeeper_reset,
    zookeeper_group_lag,
    zookeeper_session,
)
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage

__all__ = [
    "EMPTY",
    "RUNNING",
    "MoveRow",
    "Storage",
    "ZooKeeperGroup",
    "ZooKeeperGroupRow",
    "ZooKeeperMemberRow",
    "cluster_client",
    "describe_zookeeper_group",
    "execute_zookeeper_reset",
    "list_zookeeper_groups",
    "move_offsets",
    "plan_zookeeper_reset",
    "zookeeper_group_lag",
    "zookeeper_session",
]
