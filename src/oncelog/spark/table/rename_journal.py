"""Several renames as one commit: a journal names them first, and the next process finishes what one that died left.

The rule: once the journal is durable, the commit has happened; carrying it out is repeatable, because a move whose
inode is in place already was done. A move over a directory swaps the two, which is why inodes, not names, are compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.spark.table.atomic_swap import fsync, fsync_tree, swap


class Move(NamedTuple):
    """``staged`` becomes ``final``, in place of what is there; without ``staged``, ``final`` goes away."""

    staged: Path | None
    final: Path


@dataclass(frozen=True, slots=True)
class RenameJournal:
    """Moves under ``root``, with the inode that each brings; ``extra`` names the bad rows to send to a quarantine
    topic."""

    root: Path
    moves: Sequence[tuple[Move, int]]
    extra: dict[str, Any]

    @classmethod
    def of(cls, root: Path, moves: Sequence[Move], extra: dict[str, Any]) -> RenameJournal:
        """The journal of ``moves``, whose staged files are still there; they are durable when it returns."""
        for move in moves:
            if move.staged is not None:
                fsync_tree(move.staged)
        return cls(root, [(one, 0 if one.staged is None else one.staged.stat().st_ino) for one in moves], extra)

    @classmethod
    def read(cls, path: Path, root: Path) -> RenameJournal | None:
        """The journal that was left at ``path``; None when there is none."""
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        moves = [
            (Move(None if staged is None else root / staged, root / final), inode)
            for staged, final, inode in said["moves"]
        ]
        return cls(root, moves, said["extra"])

    def write(self, path: Path) -> None:
        """Write the journal durably, as a whole: the commit point."""
        moves = [
            (
                None if one.staged is None else str(one.staged.relative_to(self.root)),
                str(one.final.relative_to(self.root)),
                n,
            )
            for one, n in self.moves
        ]
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps({"moves": moves, "extra": self.extra}), encoding="utf-8")
        fsync(temporary)
        os.replace(temporary, path)
        fsync(path.parent)

    def keeping(self, rows: Path) -> RenameJournal:
        """The journal without ``extra``, whose first move takes ``rows`` to where the table's own bad rows are."""
        (first, _), *others = self.moves
        return RenameJournal(self.root, [(Move(rows, first.final), rows.stat().st_ino), *others], {})

    def carry_out(self) -> None:
        """Make all moves, in their order; those that were made are left alone."""
        for move, inode in self.moves:
            carry_out(move, inode)


def carry_out(move: Move, inode: int) -> None:
    """Carry out one move; durable when it returns."""
    staged, final = move
    if staged is None:
        final.unlink(missing_ok=True)
    elif not (final.exists() and final.stat().st_ino == inode):
        final.parent.mkdir(exist_ok=True)
        if final.is_dir():
            swap(staged, final)
        else:
            os.replace(staged, final)
    fsync(final.parent)
