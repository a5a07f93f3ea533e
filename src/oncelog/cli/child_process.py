"""``python -m oncelog.cli.child_process …``: the command line as a child that ends with its parent.

The parent holds the other end of standard input. When it ends, even by ``kill -9``, the system closes the pipe, and
this process ends as by SIGTERM. Imports no typer: brokers run here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from oncelog.cli.main import run


def end_with_stdin() -> None:
    """Block until standard input ends, then signal SIGTERM to this process."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, name="parent-watch", daemon=True).start()
    run()
