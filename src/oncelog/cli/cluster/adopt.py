"""``oncelog cluster adopt``: a broker that was alone becomes the first of a cluster on this machine, with its topics.

The order is that of a crash: the data directory takes its place first, its tree after it. Whoever finds the tree still
in the directory goes on from there; ``oncelog cluster up`` refuses to start until then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.cluster.configuration import TREE, TREE_FILE
from oncelog.cli.cluster.up import DEFAULT_DIRECTORY


def adopt(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of the broker.")],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where the cluster keeps everything; created if missing.")
    ] = DEFAULT_DIRECTORY,
) -> None:
    """Make a broker that was alone the first of a cluster; its topics are the cluster's.

    The broker must be stopped. Its directory is moved (on one file system), not copied. Interrupted, the command goes
    on where it was when it is run again. The internal topics get more replicas by themselves when other brokers are
    there; `oncelog topic reassign` gives them to yours.

    \b
    Examples:
      oncelog cluster adopt oncelog-data
      oncelog cluster up
    """
    try:
        place = move_in(directory.absolute(), data_dir.absolute())
    except OSError as error:
        raise typer.BadParameter(f"cannot move {directory} to {data_dir}: {error.strerror or error}") from None
    typer.echo(f"{directory} is now {place}, and its topics are those of the cluster: oncelog cluster up")


def move_in(directory: Path, cluster: Path) -> Path:
    """Move a data directory and its tree into the directory of a cluster; where it is then. Raises BadParameter before
    anything is changed, OSError."""
    if not directory.exists():
        interrupted = [found.parent for found in sorted(cluster.glob(f"*/{TREE_FILE}"))]
        if len(interrupted) != 1:
            raise typer.BadParameter(f"{directory} does not exist")
        directory = interrupted[0]
    broker_id = _settle(directory)
    place, tree = cluster / str(broker_id), cluster / TREE
    if tree.exists():
        raise typer.BadParameter(f"{cluster} is a cluster already ({tree} exists); choose another --data-dir")
    if place != directory:
        if place.exists():
            raise typer.BadParameter(f"{place} exists already; choose another --data-dir")
        cluster.mkdir(parents=True, exist_ok=True)
        directory.rename(place)
    for lock in place.glob(f"{TREE_FILE}.*"):
        lock.unlink()
    (place / TREE_FILE).rename(tree)
    return place


def _settle(directory: Path) -> int:
    """Make the tree one file, and see that nobody uses it; the id of the broker."""
    from oncelog.coordination.sqlite import SqliteTree, TreeUnusable
    from oncelog.runtime.files import DirectoryInUse, DiskFiles
    from oncelog.storage.errors import UnusableDirectory
    from oncelog.storage.meta_properties import read_meta_properties

    if not (directory / TREE_FILE).exists():
        raise typer.BadParameter(f"{directory} is not the directory of a broker that was alone: it has no {TREE_FILE}")
    try:
        files = DiskFiles(directory)
        files.lock()
    except DirectoryInUse as error:
        raise typer.BadParameter(f"{error}; stop it first") from None
    try:
        properties = read_meta_properties(files)
        if properties is None:
            raise typer.BadParameter(f"{directory} is not a data directory: it has no meta.properties")
        SqliteTree(directory / TREE_FILE).close()  # what is in its write-ahead log goes into the file
    except (TreeUnusable, UnusableDirectory) as error:
        raise typer.BadParameter(str(error)) from None
    finally:
        files.close()
    return properties.node_id
