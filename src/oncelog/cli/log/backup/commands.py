"""``oncelog log backup`` and ``oncelog log restore``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.notation.shell_words import option, word
from oncelog.base.text import counted
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json_line, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.cli.log.backup.manifest import Header


def backup(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Data directories of one cluster, or that of cluster up.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="BACKUP", help="The directory to create.")],
    since: Annotated[
        Path | None,
        typer.Option(metavar="BACKUP", help="Share unchanged files with this earlier backup, as hard links."),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of stopped brokers: oncelog.tree.path, if it is not beside them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the data of brokers on this host, running or stopped, as of one moment.

    The brokers of a cluster are held still together while their files are noted, for some milliseconds; clients wait.
    The backup is what kill -9 of all of them at that moment would have left: everything acknowledged before, with
    offsets, groups, producers, transactions, topics, users and ACLs. It appears under its name only when it is whole.

    \b
    Examples:
      oncelog log backup oncelog-data --to /backup/monday
      oncelog log backup oncelog-data --to /backup/tuesday --since /backup/monday
      oncelog log backup oncelog-cluster --to /backup/cluster --json
      oncelog log backup /data/1 /data/2 /data/3 --to /backup/cluster
    """
    from oncelog.cli.log.backup.making import Request, make_backup
    from oncelog.listening.descriptors import raise_limit

    raise_limit()
    with progress(None if as_json else "bytes copied") as bar:
        made = make_backup(Request([*directories], to.absolute(), since, tree), bar)
    if as_json:
        fields = asdict(made)
        print_json_line({"backup": str(to), **fields.pop("header"), **fields})
        return
    shared = f", {counted(made.shared_files, 'file')} shared with {since}" if since is not None else ""
    held = f", held for {made.held_ms:,} ms" if made.held_ms else ""
    print_line(
        f"{to}: {counted(len(made.header.brokers), 'broker')} of cluster {made.header.cluster_id} as of "
        f"{made.header.point}{held}; {counted(made.files, 'file')}, {counted(made.bytes, 'byte')}{shared}"
    )
    for broker_id in made.missing:
        print_line(f"oncelog: broker {broker_id} of the cluster is down, and its data is not in the backup", err=True)


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup made by oncelog log backup.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory to create; it may exist, empty.")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new directory, and check every byte on the way.

    One broker's becomes its data directory, several brokers' the directory of `oncelog cluster up`. Producer ids
    continue far behind those of the backup, so that none is given out twice. Start the restored brokers only when the
    original ones are stopped for good: they have the same identities.

    \b
    Examples:
      oncelog log restore /backup/monday --to oncelog-data
      oncelog log restore /backup/cluster --to oncelog-cluster --json
    """
    from oncelog.cli.log.backup.restoring import restore as restore_backup

    with progress(None if as_json else "bytes restored") as bar:
        header = restore_backup(backup, to.absolute(), bar)
    if as_json:
        print_json_line({"directory": str(to), **asdict(header)})
        return
    print_line(f"{to} has the state of {header.point}; start it with:")
    print_line(f"  {_start(to, header)}")


def _start(directory: Path, header: Header) -> str:
    """The command that starts the restored brokers; of several that cluster up did not make, the first one's."""
    count = len(header.brokers)
    if count == 1 and "/" in header.tree:
        return f"oncelog serve {option('--data-dir', directory)}"
    if [*header.brokers] == [*range(1, count + 1)]:
        return f"oncelog cluster up {option('--data-dir', directory)} {option('--brokers', count)}"
    tree = word(f"oncelog.tree.path={directory / header.tree}")
    return f"oncelog serve {option('--data-dir', directory / str(header.brokers[0]))} -o {tree}   # and so on"
