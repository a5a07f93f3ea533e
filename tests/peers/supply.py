"""Supplies for tests and benchmarks from other registries than PyPI: jars through Maven, programs built by Go and npm.

The rule: whoever needs a supply asks for its `home`, and gets a directory that is complete or `PeerMissing`; nothing is
fetched or built on the way. `tests.peers.fetch` is the one place that calls `make`, before any test runs. A supply
is complete when its stamp names what it was made from, so that another version or a changed source is made anew, and
it appears under its name in one step, so that whoever looks meanwhile sees the old one or the new one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
WORK: Final = ROOT / ".work"
HOMES: Final = WORK / "peers"

Say = Callable[[str], None]
"""Takes a line about how far it has come."""
Run = Callable[[list[str], Path], None]
"""Runs a command in a directory; raises PeerMissing when it fails."""


class PeerMissing(Exception):
    """Something a peer needs is not on this machine; the message says what, in one line."""


@dataclass(frozen=True)
class Supply:
    """One directory of jars or programs."""

    title: str
    tool: str
    """The command that fetches or builds it."""
    registry: str
    folder: str
    """Its name below `.work/peers`."""
    source: Callable[[], bytes]
    """Everything that decides what is made: coordinates, sources, locks."""
    recipe: Callable[[Path, Run], None]
    """Makes it in an empty directory."""
    variable: str = ""
    """The environment variable that may name a directory which has it already."""

    def home(self) -> Path:
        """The complete directory; raises PeerMissing when it has not been made."""
        given = os.environ.get(self.variable) if self.variable else None
        if given:
            return Path(given)
        if not self._is_complete():
            raise PeerMissing(f"{self.title}: not fetched yet (`make peers` does it, from {self.registry})")
        return self._place

    def missing(self) -> str | None:
        """The reason why it cannot be used, if it cannot."""
        try:
            self.home()
        except PeerMissing as missing:
            return str(missing)
        return None

    def make(self, run: Run) -> None:
        """Fetch or build it and put it in its place; raises PeerMissing when the tool or the registry is not there."""
        if shutil.which(self.tool) is None:
            raise PeerMissing(f"{self.tool} is not installed")
        draft = self._place.with_name(f"{self.folder}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        self.recipe(draft, run)
        (draft / "stamp").write_text(self._stamp(), encoding="ascii")
        shutil.rmtree(self._place, ignore_errors=True)
        draft.rename(self._place)

    @property
    def _place(self) -> Path:
        return HOMES / self.folder

    def _stamp(self) -> str:
        return hashlib.sha256(self.source()).hexdigest()

    def _is_complete(self) -> bool:
        stamp = self._place / "stamp"
        return stamp.exists() and stamp.read_text("ascii") == self._stamp()
