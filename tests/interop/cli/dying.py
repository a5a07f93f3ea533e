"""`python -m tests.interop.cli.dying N ARGUMENT …`: the command line, which kills itself at the Nth change it makes.

Counted are files and directories that are made, renamed or removed, databases that are opened, and commits to
ZooKeeper, each once before it is sent and once when it is answered.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from oncelog.base.tree import Operation
from oncelog.cli.main import invoke
from oncelog.coordination.zookeeper.tree import ZooKeeperSession

_CHANGES: Final = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"})


class Countdown:
    """Ends the process, without a word, when it comes to nothing."""

    def __init__(self, left: int) -> None:
        self._left = left

    def one_less(self) -> None:
        """Another change."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(self, event: str, _: tuple[Any, ...]) -> None:
        """A hook of `sys.addaudithook`."""
        if event in _CHANGES:
            self.one_less()


def main() -> int:
    """Run the command line, with all its changes counted; its exit code if it lives."""
    countdown = Countdown(int(sys.argv[1]))
    commit = ZooKeeperSession.commit

    def counted(session: ZooKeeperSession, operations: Sequence[Operation], token: str = "") -> int:
        countdown.one_less()
        position = commit(session, operations, token)
        countdown.one_less()
        return position

    ZooKeeperSession.commit = counted  # type: ignore[method-assign]
    sys.addaudithook(countdown.on_event)
    return invoke(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
