"""Groups of consumers that balance or keep their offsets in ZooKeeper: list, describe, reset, and move their offsets.

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
