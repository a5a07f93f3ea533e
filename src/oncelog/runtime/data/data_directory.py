"""The data directory as opened by this process: its lock, its files, its coordination tree."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from oncelog.base.private_files import exposed_mode
from oncelog.coordination.sqlite.tree import SqliteTree, TreeUnusable
from oncelog.node.assembly import Outside, StartRefused, check_before_a_new_tree
from oncelog.node.listeners.broker_settings import Settings
from oncelog.ports import Coordination, Files, TreeUnavailable
from oncelog.runtime.clock import SystemEntropy
from oncelog.runtime.data.disk_files import DirectoryInUse, DiskFiles

_LOG: Final = logging.getLogger("oncelog.broker")
TREE_FILE: Final = "coordination.db"
ADOPTED_TREE: Final = f"adopted-{TREE_FILE}"
"""A single broker's tree after ``oncelog cluster adopt`` has copied it into ZooKeeper."""


class Tree(Protocol):
    def session(self) -> Coordination:
        """Begin a session. Raises TreeUnavailable."""

    def close(self) -> None:
        """Close it, after its sessions have ended."""


@dataclass(slots=True)
class DataDirectory:
    files: DiskFiles
    tree: Tree | None
    """None: the caller has brought a session of its own."""
    outside: Outside

    def release(self) -> None:
        """Close everything and release the directory's lock."""
        self.outside.coordination.close()
        if self.tree is not None:
            self.tree.close()
        self.files.close()


def open_data_directory(settings: Settings, coordination: Coordination | None = None) -> DataDirectory:
    """Lock and open a broker's data directory, created if missing, and its coordination tree, unless ``coordination``
    is a session already. Raises StartRefused.
    """
    path = Path(settings.data_directory)
    try:
        files = DiskFiles(path)
        files.lock()
    except DirectoryInUse as error:
        raise StartRefused(f"{error}; stop it, or choose another --data-dir") from None
    except OSError as error:
        raise StartRefused(f"cannot use {path} as data directory: {error.strerror or error}") from None
    mode = exposed_mode(path)
    if mode is not None:
        _LOG.warning("other users have access to %s (mode %s): run chmod 700 on it", path, mode)
    if coordination is not None:
        return DataDirectory(files, None, Outside(files, coordination, SystemEntropy()))
    try:
        tree = _open_tree(settings, files)
        session = tree.session()
    except (TreeUnusable, TreeUnavailable) as error:
        files.close()
        raise StartRefused(str(error)) from None
    except BaseException:
        files.close()
        raise
    return DataDirectory(files, tree, Outside(files, session, SystemEntropy()))


def _open_tree(settings: Settings, files: Files) -> Tree:
    """Open the tree of the broker's cluster. Raises StartRefused, TreeUnusable."""
    config = settings.config
    path, connect = config.get("oncelog.tree.path"), config.get("zookeeper.connect")
    timeout_ms = int(config.get("zookeeper.session.timeout.ms"))
    _check_own_tree(Path(settings.data_directory), path, connect)
    if connect is None:
        file = Path(path or Path(settings.data_directory) / TREE_FILE)
        if not file.exists():
            check_before_a_new_tree(files)
        return SqliteTree(file, timeout_ms)
    if path is not None:
        raise StartRefused(
            "zookeeper.connect and oncelog.tree.path are both set, but a cluster has one coordination tree: remove one"
        )
    try:
        from oncelog.runtime.data.zookeeper_tree import open_zookeeper_tree
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise StartRefused(
            "zookeeper.connect is set, but kazoo is not installed: pip install 'oncelog[cluster]'"
        ) from None
    return open_zookeeper_tree(config, connect, timeout_ms)


def _check_own_tree(directory: Path, path: str | None, connect: str | None) -> None:
    """Refuse to start if the directory's topics are those of another tree than the configured one. Raises
    StartRefused."""
    # Otherwise the logs of these topics would be set aside as strays.
    own = directory / TREE_FILE
    if connect is None and path is None:
        if (directory / ADOPTED_TREE).exists() and not own.exists():
            raise StartRefused(
                f"the topics of {directory} were moved to a cluster in ZooKeeper by oncelog cluster adopt: "
                "set zookeeper.connect"
            )
    elif own.exists() and (path is None or own.resolve() != Path(path).resolve()):
        from oncelog.base.notation.shell_words import argument, option  # only needed for the refusal

        cluster = "--data-dir DIR" if connect is None else option("--zookeeper", connect)
        raise StartRefused(
            f"the broker of {directory} has been a single broker, and its topics are in {own}; move them with "
            f"oncelog cluster adopt {cluster} {argument(str(directory))}"
        )
