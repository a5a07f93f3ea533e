"""Makes a backup: all brokers of a cluster on this host, as they would be after ``kill -9`` of all at one moment.

1. The files are opened, while the brokers work.
2. All running brokers are held (``runtime.data.broker_hold``). While none of them moves, the files are noted and a read
   transaction pins the tree. Then all are released, and each confirms that its hold lasted.
3. The noted bytes are copied with checksums and synced, the manifest last. A rename gives the backup its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from oncelog import __version__
from oncelog.base.text import counted
from oncelog.cli.log.backup.copying import INCOMPLETE, Copier, Made, Progress, building, check_is_free
from oncelog.cli.log.backup.manifest import BackupError, Header, Manifest
from oncelog.cli.log.backup.noted_files import BrokerFiles
from oncelog.cli.log.backup.tree_file import TreeSnapshot
from oncelog.core.controller.image import layout
from oncelog.listening.descriptors import limit
from oncelog.runtime.data.broker_hold import HOLD_S, BrokerHold, NotHeld
from oncelog.runtime.data.data_directory import TREE_FILE
from oncelog.storage.file_names import META_PROPERTIES

CLUSTER_TREE: Final = "cluster.db"
"""The tree of several brokers, where ``oncelog cluster up`` has it."""
_ATTEMPTS: Final = 5
# Brokers that are not yet held may find the others frozen after 1.5 s (``oncelog.broker.freeze.timeout.ms``), which
# includes some of the time around it. Once all are held, none watches the others.
_ALL_HELD_S: Final = 0.5
_OTHER_FILES: Final = 256
"""Descriptors for anything but the brokers' files."""


@dataclass(frozen=True)
class Request:
    directories: Sequence[Path]
    to: Path
    since: Path | None = None
    """An earlier backup, with which unchanged files are shared."""
    tree: Path | None = None


def make_backup(request: Request, progress: Progress) -> Made:
    """Raises BackupError; then ``to`` does not exist."""
    incomplete = request.to.with_name(request.to.name + INCOMPLETE)
    check_is_free(request.to, incomplete)
    previous = {} if request.since is None else {entry.path: entry for entry in Manifest(request.since).entries()}
    with ExitStack() as resources:
        brokers: list[BrokerFiles] = []
        directories = [*data_directories(request.directories)]
        for directory in directories:
            brokers.append(BrokerFiles(directory, max(0, limit() - _OTHER_FILES) // len(directories)))
            resources.callback(brokers[-1].close)
        tree = TreeSnapshot(_tree_of(brokers, request.tree))
        resources.callback(tree.close)
        made = _note_all(brokers, tree)
        request.to.parent.mkdir(parents=True, exist_ok=True)
        with building(incomplete, request.to):
            Copier(incomplete, request.since, previous, progress).copy(brokers, tree, made)
            _check_uncut(brokers)
    return made


def data_directories(paths: Sequence[Path]) -> Iterator[Path]:
    """The brokers' directories among ``paths``; that of a cluster stands for all of its brokers. Raises BackupError."""
    for path in paths:
        if (path / META_PROPERTIES).exists():
            yield path
            continue
        below = sorted(properties.parent for properties in path.glob(f"*/{META_PROPERTIES}"))
        if not below:
            raise BackupError(f"{path} is not the data directory of a broker or cluster: it has no {META_PROPERTIES}")
        yield from below


def _tree_of(brokers: Sequence[BrokerFiles], given: Path | None) -> Path:
    """The SQLite file of the brokers' cluster. Raises BackupError."""
    trees = {_tree_of_broker(broker, given).resolve() for broker in brokers}
    ids = [broker.properties.node_id for broker in brokers]
    if len(trees) != 1 or len(set(ids)) != len(ids):
        raise BackupError("the directories belong to several clusters: a backup is of one")
    return trees.pop()


def _tree_of_broker(broker: BrokerFiles, given: Path | None) -> Path:
    if broker.state is not None:
        if broker.state.tree is None:
            raise BackupError(
                f"the cluster of {broker.directory} keeps its metadata in ZooKeeper, which this command does not copy: "
                "mirror the cluster with oncelog mirror, or stop all brokers and copy their files and ZooKeeper's"
            )
        return Path(broker.state.tree)
    for path in (given, broker.directory / TREE_FILE, broker.directory.parent / CLUSTER_TREE):
        if path is not None and path.exists():
            return path
    raise BackupError(
        f"the metadata of the cluster of {broker.directory} is not beside it: name its file (oncelog.tree.path) with "
        "--tree"
    )


def _note_all(brokers: Sequence[BrokerFiles], tree: TreeSnapshot) -> Made:
    """Note the files of all brokers, and pin the tree, as of one moment. Raises BackupError."""
    for broker in brokers:
        broker.note()
    tree.pin()
    _check_whole(brokers, tree)  # before the hold: the others would find a part of the cluster frozen
    for _ in range(_ATTEMPTS):
        _wait_until_all_answer(brokers)
        began_s = time.monotonic()
        point = datetime.now(UTC)
        was_held = _note_held(brokers, tree)
        held_ms = int((time.monotonic() - began_s) * 1_000)
        if was_held:
            break
    else:
        raise BackupError(
            f"the brokers cannot be held for the {held_ms:,} ms that it takes to note their files (at most "
            f"{HOLD_S:.0f} s, {_ALL_HELD_S:g} s of them until all are held): run the command when the machine "
            "is less busy, or stop them"
        )
    ids = _check_whole(brokers, tree)
    is_own = tree.path.parent == brokers[0].directory.resolve()
    place = f"{brokers[0].properties.node_id}/{TREE_FILE}" if is_own else CLUSTER_TREE
    header = Header(str(tree.cluster_id()), sorted(ids), place, point.isoformat(timespec="milliseconds"), __version__)
    is_running = any(broker.hold is not None for broker in brokers)
    return Made(header, held_ms if is_running else 0, sorted(tree.brokers(layout.BROKER_RECORDS) - ids))


def _check_whole(brokers: Sequence[BrokerFiles], tree: TreeSnapshot) -> set[int]:
    """Raises BackupError."""
    cluster_id, ids = tree.cluster_id(), {int(broker.properties.node_id) for broker in brokers}
    for broker in brokers:
        if broker.properties.cluster_id != cluster_id:
            raise BackupError(
                f"{broker.directory} belongs to cluster {broker.properties.cluster_id}, {tree.path} to {cluster_id}"
            )
    absent = sorted(tree.brokers(layout.BROKER_IDS) - ids)
    if absent:
        raise BackupError(
            f"the cluster has {counted(len(absent), 'broker')} more ({', '.join(map(str, absent))}): name all data "
            "directories of the cluster"
        )
    return ids


def _note_held(brokers: Sequence[BrokerFiles], tree: TreeSnapshot) -> bool:
    """False if a running broker was not held throughout. Raises BackupError."""
    held: list[BrokerHold] = []
    by_s = time.monotonic() + _ALL_HELD_S
    try:
        for broker in brokers:
            if broker.hold is not None:
                broker.state = broker.hold.begin(by_s - time.monotonic())
                if broker.state is None:
                    return False
                held.append(broker.hold)
        for broker in brokers:
            broker.note()
        tree.pin()
    except NotHeld as error:
        raise BackupError(f"the broker of {broker.directory} cannot be held: {error}") from None
    finally:
        for hold in held:
            hold.release()
        released = [hold.was_held() for hold in held]
    return all(released)


def _wait_until_all_answer(brokers: Sequence[BrokerFiles]) -> None:
    """Raises BackupError."""
    for broker in brokers:
        if broker.hold is not None:
            try:
                broker.hold.state()
            except NotHeld as error:
                raise BackupError(f"the broker of {broker.directory} cannot be held: {error}") from None


def _check_uncut(brokers: Sequence[BrokerFiles]) -> None:
    """Raises BackupError if a log was cut while it was copied, as a follower's is after a change of its leader."""
    for broker in brokers:
        if broker.hold is not None and broker.state is not None:
            try:
                state = broker.hold.state()
            except NotHeld as error:
                raise BackupError(
                    f"the broker of {broker.directory} did not last until its files were copied ({error}): run the "
                    "command again"
                ) from None
            if state.truncations != broker.state.truncations:
                raise BackupError(
                    f"a log in {broker.directory} was cut while it was copied, because its leader changed: run the "
                    "command again"
                )
