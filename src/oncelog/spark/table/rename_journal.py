"""A journal that makes several renames one commit: the next process completes those that a dead one left.

The commit happens once the journal is durable. Inodes tell which moves were made, because a move over a directory swaps
the two names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.table.atomic_swap import fsync, fsync_tree, swap

# Of a table's description, its journals and the progress of its exports.
FORMAT: Final = 1


class UnknownTableFormat(SparkSourceError): ...


def check_format(name: str, content: Mapping[str, Any]) -> None:
    # Early versions wrote the number only into descriptions.
    if (version := content.get("format", FORMAT)) != FORMAT:
        raise UnknownTableFormat(
            f"{name} has format {version}, and this version of oncelog reads {FORMAT}: use the version that wrote it"
        )


class Move(NamedTuple):
    """``staged`` replaces ``final``; without ``staged``, ``final`` is removed."""

    staged: Path | None
    final: Path


@dataclass(frozen=True, slots=True)
class RenameJournal:
    """Moves below ``root``, each with the inode it puts in place; ``extra`` names bad rows for a quarantine topic."""

    root: Path
    moves: Sequence[tuple[Move, int]]
    extra: dict[str, Any]

    @classmethod
    def of(cls, root: Path, moves: Sequence[Move], extra: dict[str, Any]) -> RenameJournal:
        """The journal of ``moves``. Makes their staged files durable."""
        for move in moves:
            if move.staged is not None:
                fsync_tree(move.staged)
        return cls(root, [(move, 0 if move.staged is None else move.staged.stat().st_ino) for move in moves], extra)

    @classmethod
    def read(cls, path: Path, root: Path) -> RenameJournal | None:
        try:
            journal = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        check_format(str(path), journal)
        moves = [
            (Move(None if staged is None else root / staged, root / final), inode)
            for staged, final, inode in journal["moves"]
        ]
        return cls(root, moves, journal["extra"])

    def write(self, path: Path) -> None:
        """Write the journal durably and atomically. This is the commit point."""
        moves = [
            (
                None if move.staged is None else str(move.staged.relative_to(self.root)),
                str(move.final.relative_to(self.root)),
                inode,
            )
            for move, inode in self.moves
        ]
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps({"format": FORMAT, "moves": moves, "extra": self.extra}), encoding="utf-8")
        fsync(temporary)
        # The commit point: a reader finds the whole journal or none.
        os.replace(temporary, path)
        fsync(path.parent)

    def with_local_bad_rows(self, rows: Path) -> RenameJournal:
        """The journal without ``extra``, whose first move puts ``rows`` with the table's own bad rows."""
        (first, _), *others = self.moves
        return RenameJournal(self.root, [(Move(rows, first.final), rows.stat().st_ino), *others], {})

    def apply(self) -> None:
        for move, inode in self.moves:
            apply(move, inode)


def apply(move: Move, inode: int) -> None:
    """Make one move durably, unless it was already made."""
    staged, final = move
    if staged is None:
        final.unlink(missing_ok=True)
    elif not (final.exists() and final.stat().st_ino == inode):
        final.parent.mkdir(exist_ok=True)
        # rename() does not replace a directory that has content.
        if final.is_dir():
            swap(staged, final)
        else:
            os.replace(staged, final)
    fsync(final.parent)
