"""``oncelog cluster adopt``: makes a stand-alone broker the first broker of a cluster and keeps its topics.

On this machine the data directory moves first and its tree second. For ZooKeeper the tree is copied, then its file is
renamed, then the copy becomes the cluster's. Both orders survive a crash: until the end the tree is in the directory or
set aside there, the command continues from what it finds, and no broker starts on a tree elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.notation.shell_words import argument, option, word
from oncelog.base.text import counted
from oncelog.cli.cluster.configuration import TREE, TREE_FILE
from oncelog.cli.cluster.up import DEFAULT_DIRECTORY
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file
from oncelog.cli.support.terminal import print_line
from oncelog.storage.errors import UnusableDirectory

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper.tree import ZooKeeperTree

_SESSION_MS: Final = 18_000
"""Apache Kafka's default of ``zookeeper.session.timeout.ms``."""


def adopt(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of the broker.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help=f"Where a cluster on this machine keeps everything; made if missing. [default: {DEFAULT_DIRECTORY}]",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="CONNECT", help="The cluster is in ZooKeeper: host:port,host:port/path."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="The broker's server.properties: TLS and login at ZooKeeper, its ACLs."
        ),
    ] = None,
) -> None:
    """Make a broker that was alone the first of a cluster; its topics are the cluster's.

    The broker must be stopped. Without --zookeeper the cluster is one on this machine, and the directory is moved there
    (on one file system), not copied. With it the directory stays, and what the broker knows of its topics goes to a
    path in ZooKeeper that is empty or absent. Interrupted, the command goes on where it was when it is run again. The
    internal topics get more replicas by themselves when other brokers are there; `oncelog topic reassign` gives them
    to yours.

    \b
    Examples:
      oncelog cluster adopt oncelog-data
      oncelog cluster up
      oncelog cluster adopt oncelog-data --zookeeper zk1:2181,zk2:2181,zk3:2181/oncelog
      oncelog cluster adopt oncelog-data --zookeeper zk1:2281/oncelog --config server.properties
      oncelog serve --data-dir oncelog-data -o zookeeper.connect=zk1:2181,zk2:2181,zk3:2181/oncelog
    """
    if zookeeper is not None:
        if data_dir is not None:
            raise typer.BadParameter(
                "give --data-dir for a cluster on this machine or --zookeeper, not both", param_hint="--data-dir"
            )
        count = move_to_zookeeper(directory.absolute(), zookeeper, config)
        more = "" if config is None else f" {option('--config', config)}"
        print_line(
            f"{counted(count, 'node')} copied to ZooKeeper, where the topics of {directory} are kept from now on: "
            f"oncelog serve {option('--data-dir', directory)}{more} -o {word(f'zookeeper.connect={zookeeper}')}"
        )
        return
    if config is not None:
        raise typer.BadParameter(
            "a configuration is only for a cluster in ZooKeeper: give --zookeeper, or leave it out",
            param_hint="--config",
        )
    place_of_all = data_dir or DEFAULT_DIRECTORY
    try:
        place = move_in(directory.absolute(), place_of_all.absolute())
    except OSError as error:
        raise typer.BadParameter(f"cannot move {directory} to {place_of_all}: {error.strerror or error}") from None
    print_line(f"{directory} is now {place}, and its topics are those of the cluster: oncelog cluster up")


def move_in(directory: Path, cluster: Path) -> Path:
    """Moves a data directory and its tree into the directory of a cluster, and returns the new path.

    Raises BadParameter before anything is changed, and OSError.
    """
    tree = cluster / TREE
    if not directory.exists():
        interrupted = [path.parent for path in sorted(cluster.glob(f"*/{TREE_FILE}"))]
        if len(interrupted) != 1:
            done = f"; if it was adopted into {cluster}, that is done: oncelog cluster up" if tree.exists() else ""
            raise typer.BadParameter(f"{directory} does not exist{done}")
        directory = interrupted[0]
    broker_id = _settle(directory)
    place = cluster / str(broker_id)
    if tree.exists():
        raise typer.BadParameter(f"{cluster} is a cluster already ({tree} exists); choose another --data-dir")
    if place != directory:
        if (place / TREE_FILE).exists():
            raise typer.BadParameter(
                f"the adoption of {place} was interrupted: complete it with oncelog cluster adopt "
                f"{option('--data-dir', cluster)} {argument(str(place))}. "
                f"{directory} is another broker, created since"
            )
        if place.exists():
            raise typer.BadParameter(f"{place} exists already; choose another --data-dir")
        cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.rename(place)
    _remove_locks(place)
    (place / TREE_FILE).rename(tree)
    return place


def move_to_zookeeper(directory: Path, connect: str, config: Path | None = None) -> int:
    """Copies the tree of a data directory into ZooKeeper, sets its file aside, and returns the number of nodes.

    Raises BadParameter, or Exit(1) when ZooKeeper cannot be reached; another run continues.
    """
    from oncelog.cli.cluster.tree_copy import CopyRefused, complete, copy_tree
    from oncelog.coordination.sqlite.tree import SqliteTree
    from oncelog.ports import OutcomeUnknown, SessionLost, TreeUnavailable
    from oncelog.runtime.data.data_directory import ADOPTED_TREE

    zookeeper = _zookeeper(connect, config)
    own, aside = directory / TREE_FILE, directory / ADOPTED_TREE
    is_aside = aside.exists() and not own.exists()
    with _alone(directory, ADOPTED_TREE if is_aside else TREE_FILE):
        try:
            with closing(zookeeper.session()) as target:
                with (
                    closing(SqliteTree(aside if is_aside else own)) as tree,
                    closing(tree.session()) as source,
                ):
                    copied = copy_tree(source, target, _tell_progress, is_aside=is_aside)
                if not is_aside:
                    own.rename(aside)
                complete(target, copied.cluster_id)
        except CopyRefused as refused:
            raise typer.BadParameter(f"cannot adopt {directory}: {refused}") from None
        except (OutcomeUnknown, SessionLost, TreeUnavailable) as error:
            state = f"{directory} is as before" if own.exists() else f"the adoption of {directory} is not done"
            print_line(f"oncelog: {error}; {state}: run the command again", err=True)
            raise typer.Exit(1) from None
        _remove_locks(directory)
    return copied.count


def _zookeeper(connect: str, config: Path | None) -> ZooKeeperTree:
    """The tree in ZooKeeper, not connected yet. Raises BadParameter."""
    from oncelog.node.assembly import StartRefused
    from oncelog.node.listeners.broker_settings import BrokerConfig, ConfigError
    from oncelog.runtime.security.config_providers import resolve_references

    try:
        from oncelog.runtime.data.zookeeper_tree import open_zookeeper_tree
    except ModuleNotFoundError:
        raise typer.BadParameter("kazoo is not installed: pip install 'oncelog[cluster]'") from None
    try:
        values = {} if config is None else read_properties_file(config)
        return open_zookeeper_tree(BrokerConfig(resolve_references(values)), connect, _SESSION_MS)
    except (OSError, PropertiesError, ConfigError, StartRefused) as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None


def _tell_progress(done: int, total: int) -> None:
    print_line(f"oncelog: {done:,} of {total:,} nodes", err=True)


def _settle(directory: Path) -> int:
    """Merges the tree's write-ahead log into its file and returns the broker's id."""
    from oncelog.coordination.sqlite.tree import SqliteTree

    with _alone(directory) as broker_id:
        SqliteTree(directory / TREE_FILE).close()  # moves its write-ahead log into the file
    return broker_id


def _remove_locks(directory: Path) -> None:
    for lock in directory.glob(f"*{TREE_FILE}.*"):
        lock.unlink()


@contextmanager
def _alone(directory: Path, tree: str = TREE_FILE) -> Iterator[int]:
    """Locks the directory of a stopped stand-alone broker and its tree, and yields the broker's id. Raises
    BadParameter."""
    from oncelog.coordination.sqlite.tree import TreeUnusable
    from oncelog.runtime.data.disk_files import DirectoryInUse, DiskFiles
    from oncelog.storage.meta_properties import read_meta_properties

    if not (directory / tree).exists():
        raise typer.BadParameter(f"{directory} is not the data directory of a single broker: it has no {TREE_FILE}")
    try:
        files = DiskFiles(directory)
        files.lock()
    except DirectoryInUse as error:
        raise typer.BadParameter(f"{error}; stop it first") from None
    with closing(files):
        try:
            properties = read_meta_properties(files)
            if properties is None:
                raise typer.BadParameter(f"{directory} is not a data directory: it has no meta.properties")
            yield properties.node_id
        except (TreeUnusable, UnusableDirectory) as error:
            raise typer.BadParameter(str(error)) from None
