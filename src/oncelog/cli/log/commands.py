"""``oncelog log``: data directories: their contents read without a broker, and their backups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oncelog.base.text import counted
from oncelog.cli.log.backup.commands import backup, restore
from oncelog.cli.log.dump.files import Wanted
from oncelog.cli.log.importing import import_
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AsJson
from oncelog.cli.support.output import print_json_line, progress
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import ClientError
from oncelog.legacy.logs.directories import file_start

app = CommandGroup("Back up, restore and look into data directories; import those of Kafka 0.7.")
app.command("import")(import_)
app.command()(backup)
app.command()(restore)


_KINDS: Final = ("log", "kafka", "index", "timeindex", "txnindex", "snapshot", "checkpoint")


@app.command()
def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Data directories, partition directories, or single files.")
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Each record too, not only the batches.")] = False,
    no_values: Annotated[bool, typer.Option("--no-values", help="With --records: sizes only.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not decode records of internal topics.")] = False,
    from_offset: Annotated[
        int, typer.Option("--from-offset", metavar="OFFSET", min=0, help="Batches from this offset on.")
    ] = 0,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="Batches before this offset.")
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not compute checksums.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="KIND", help=f"{', '.join(_KINDS)}; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the contents of a log's files, oncelog's or Apache Kafka's; those of Kafka 0.7 (.kafka) too.

    Exit code 1 if anything in them is damaged. With --json, one object a line.

    \b
    Examples:
      oncelog log dump ./oncelog-data/flights-0
      oncelog log dump -r ./oncelog-data/__consumer_offsets-12
      oncelog log dump --only snapshot --json /var/lib/kafka/flights-0
      oncelog log dump -r /var/kafka-0.7/logs/clicks-0/00000000000000000000.kafka
    """
    for kind in only or ():
        if kind not in _KINDS:
            raise typer.BadParameter(f"{kind!r} is not one of {', '.join(_KINDS)}", param_hint="--only")
    selection = Wanted(records, not no_values, not raw, from_offset, to_offset, not no_check)
    damaged = False
    shown = 0
    for path in paths:
        if not path.exists():
            raise ClientError(f"{path}: no such file or directory")
        for file in _files(path, set(only or ())):
            shown += 1
            damaged |= _show(file, selection, as_json)
    if not shown:
        raise ClientError(f"{paths[0]} has no log files; name files, or a directory such as DATA/TOPIC-0")
    if damaged:
        raise typer.Exit(1)


@app.command()
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Data directories, partition directories, segments, backups.")
    ],
    as_json: AsJson = False,
) -> None:
    """Name the batches that no reader can read, or whose header contradicts their records; oncelog's or Apache Kafka's.

    Brokers take such batches with oncelog.record.validation=headers, and took them in earlier versions. The files of a
    backup are compared with their checksums first. Exit code 1 if anything is wrong. With --json, one object a problem.

    \b
    Examples:
      oncelog log verify ./oncelog-data/flights-0
      oncelog log verify /backup/monday
      oncelog log verify --json /var/lib/kafka
    """
    from oncelog.cli.log.verification import problems

    batches = segments = unreadable = hiding = changed = 0
    for path in paths:
        if not path.exists():
            raise ClientError(f"{path}: no such file or directory")
        changed += _verify_backup(path, as_json)
        for file in _files(path, {"log"}):
            segments += 1
            for problem in problems(file):
                batches += 1
                if problem is None:
                    continue
                hiding += problem.hides_records
                unreadable += not problem.hides_records
                if as_json:
                    print_json_line({"file": str(file), **problem._asdict()})
                else:
                    print_line(
                        f"{file}: batch at offset {problem.base_offset}, position {problem.position}: {problem.problem}"
                    )
    if not segments:
        raise ClientError(f"{paths[0]} has no log segments; name .log files, or a directory such as DATA/TOPIC-0")
    if not as_json:
        print_line(
            f"{batches} batches in {segments} segments: {unreadable} damaged, {hiding} with a wrong largest timestamp"
        )
    if unreadable or hiding or changed:
        raise typer.Exit(1)


def _verify_backup(path: Path, as_json: bool) -> int:
    """Prints how the files of a backup differ from its manifest, and returns their number; 0 for other directories."""
    from oncelog.cli.log.backup.manifest import MANIFEST, Manifest
    from oncelog.cli.log.backup.restoring import problems_of

    if not (path / MANIFEST).exists():
        return 0
    manifest, changed = Manifest(path), 0
    with progress(None if as_json else "bytes checked") as bar:
        for file, problem in problems_of(manifest, bar):
            changed += 1
            if as_json:
                print_json_line({"file": str(path / file), "problem": problem})
            else:
                print_line(f"{path / file}: {problem}")
    if not as_json:
        print_line(f"{path}: {counted(manifest.files, 'file')} of {manifest.header.point}, {changed} damaged")
    return changed


def _files(path: Path, only: set[str]) -> Iterator[Path]:
    """The files to show under ``path``, partition by partition. A file named on the command line is always shown."""
    from oncelog.cli.log.dump.files import base_offset_of, reader_of

    if not path.is_dir():
        yield path
        return
    for child in sorted(path.iterdir(), key=lambda child_path: (child_path.is_dir(), child_path.name)):
        if child.is_dir():
            yield from _files(child, only)
        elif file_start(child.name) is not None:
            if not only or "kafka" in only:
                yield child
        elif reader_of(child) is not None or (child.suffix == ".log" and base_offset_of(child) is not None):
            kind = child.suffix[1:] if base_offset_of(child) is not None else "checkpoint"
            if not only or kind in only:
                yield child


def _show(path: Path, selection: Wanted, as_json: bool) -> bool:
    """Prints the rows of one file; True if the file is damaged."""
    damaged = False
    if not as_json:
        print_line(f"{path}")
    for row in _rows(path, selection):
        damaged |= row["type"] == "error" or row.get("valid") is False
        if as_json:
            print_json_line({"file": str(path), **row})
        else:
            print_line(f"  {_line(row)}")
    return damaged


def _rows(path: Path, selection: Wanted) -> Iterator[dict[str, Any]]:
    from oncelog.cli.log.dump.files import error, reader_of
    from oncelog.cli.log.dump.old_log import old_log_rows
    from oncelog.cli.log.dump.segment import segment_rows

    reader = reader_of(path)
    try:
        if reader is not None:
            yield from reader(path)
        elif path.suffix == ".log":
            yield from segment_rows(path, selection)
        elif path.suffix == ".kafka":
            yield from old_log_rows(path, selection)
        else:
            yield error("not a file of a log")
    except (ValueError, OSError) as problem:
        yield error(str(problem))


def _line(row: dict[str, Any]) -> str:
    """A row as ``type name=value …``, with times as text."""
    parts = []
    for name, value in row.items():
        if name == "type":
            parts.append(("  " if value == "record" else "") + str(value))
        elif value is None:
            continue
        elif ("timestamp" in name and name != "timestamp_type") or name.endswith("horizon_ms"):
            parts.append(f"{name}={_moment(value)}")
        elif isinstance(value, bool):
            parts.extend([name] if value else [f"{name}=no"] if name == "valid" else [])
        else:
            parts.append(f"{name}={_text(value)}")
    return " ".join(parts)


def _moment(milliseconds: int) -> str:
    if milliseconds < 0:
        return "none"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return str(milliseconds)


def _text(value: object) -> str:
    from oncelog.cli.log.dump.files import bytes_text

    if isinstance(value, bytes):
        return bytes_text(value)
    return str(value)
