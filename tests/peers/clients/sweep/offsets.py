"""FindCoordinator, OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Final

from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, versions


def _commit(
    group: str,
    topic: str,
    topic_id: bytes,
    partition: int = 0,
    offset: int = 5,
    metadata: str | None = "note",
    **who: object,
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata
    )
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[committed])]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    for name, value in who.items():
        setattr(request, name, value)
    return request


def _find_coordinator(wire: Wire) -> None:
    for version in versions(FindCoordinatorRequest):
        for key, key_type in (("group", 0), ("", 0), ("group", 9)):
            wire.call(FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key]), version)
        wire.call(FindCoordinatorRequest(key="a", coordinator_keys=["a", "b", "a"]), version)
        wire.call(FindCoordinatorRequest(key="a", coordinator_keys=[]), version)


def _offset_commit(wire: Wire) -> None:
    topic_id = wire.topic("so-one", 3)
    for version in versions(OffsetCommitRequest):
        group = f"so-commit-{version}"
        wire.call(_commit(group, "so-one", topic_id), version)
        for offset in (0, -1, -2, 2**62):
            wire.call(_commit(group, "so-one", topic_id, 1, offset), version)
        for metadata in (None, "", "m" * 4096, "m" * 4097):
            wire.call(_commit(group, "so-one", topic_id, 2, 7, metadata), version)
        wire.call(_commit(group, "so-one", topic_id, 8), version)
        wire.call(_commit(group, "so-none", NOWHERE), version)
        wire.call(_commit("", "so-one", topic_id), version)
        wire.call(_commit(group, "so-one", topic_id, member_id="nobody"), version)
        wire.call(_commit(group, "so-one", topic_id, generation_id_or_member_epoch=3), version)
        wire.call(_commit(group, "so-one", topic_id, member_id="nobody", generation_id_or_member_epoch=3), version)
        wire.call(_commit(group, "so-one", topic_id, group_instance_id="static"), version)
        wire.call(OffsetCommitRequest(group_id=group), version)
        _fetch_everything(wire, group)


def _fetch_everything(wire: Wire, group: str) -> None:
    request = OffsetFetchRequestGroup(group_id=group, topics=None)
    wire.call(OffsetFetchRequest(groups=[request]), 9)


def _offset_fetch(wire: Wire) -> None:
    topic_id = wire.topic("so-fetch", 3)
    for partition in (0, 1):
        wire.call(_commit("so-fetched", "so-fetch", topic_id, partition, 10 + partition), 8)

    def ask(group: str, topic: str, identity: bytes, version: int, **fields: object) -> None:
        partitions = [0, 2, 9]
        plain = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
        nested = [OffsetFetchRequestTopics(name=topic, topic_id=identity, partition_indexes=partitions)]
        request = OffsetFetchRequest(
            group_id=group, topics=plain, groups=[OffsetFetchRequestGroup(group_id=group, topics=nested)]
        )
        for name, value in fields.items():
            setattr(request, name, value)
        wire.call(request, version)

    for version in versions(OffsetFetchRequest):
        ask("so-fetched", "so-fetch", topic_id, version)
        ask("so-nobody", "so-fetch", topic_id, version)
        ask("", "so-fetch", topic_id, version)
        ask("so-fetched", "so-none", NOWHERE, version)
        if version >= 7:
            ask("so-fetched", "so-fetch", topic_id, version, require_stable=True)
        if version >= 2:
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("so-fetched", "so-nobody")]
            wire.call(OffsetFetchRequest(group_id="so-fetched", topics=None, groups=groups), version)
        if version >= 9:
            member = OffsetFetchRequestGroup(group_id="so-fetched", topics=None, member_id="nobody", member_epoch=1)
            wire.call(OffsetFetchRequest(groups=[member]), version)


def _offset_delete(wire: Wire) -> None:
    topic_id = wire.topic("so-delete", 3)
    for version in versions(OffsetDeleteRequest):
        wire.call(_commit("so-deleted", "so-delete", topic_id), 8)
        for group, topic, partition in (
            ("so-deleted", "so-delete", 0),
            ("so-deleted", "so-delete", 1),
            ("so-deleted", "so-delete", 9),
            ("so-deleted", "so-none", 0),
            ("so-nobody", "so-delete", 0),
            ("", "so-delete", 0),
        ):
            partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
            topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
            wire.call(OffsetDeleteRequest(group_id=group, topics=topics), version)
        _fetch_everything(wire, "so-deleted")


SWEEPS: Final[dict[str, Sweep]] = {
    "find-coordinator": _find_coordinator,
    "offset-commit": _offset_commit,
    "offset-fetch": _offset_fetch,
    "offset-delete": _offset_delete,
}
