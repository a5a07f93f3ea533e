"""The limits of the wall clock that tests have, and waiting for what others do.

The rule: a test waits for a thing and never for a time. How long the thing takes is the machine's affair: it may be
slow, busy, or give this process the lowest priority. `HANG_S` is for what never comes, and far from anything that
comes. What has to be quick is measured in work (turns of the loop, elements, bytes, processor time), or in `bench/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

HANG_S: Final = 600
"""Below pytest's own limit, so that a test which hangs says what it waited for."""
LABEL_S: Final = 20
"""For a label on a page in a browser: pages come within a second, and a label that was renamed must not cost ten
minutes before the test names it."""
POLL_S: Final = 0.01


def wait_until(condition: Callable[[], object], text: str | Callable[[], str], poll_s: float = POLL_S) -> None:
    """Return when ``condition`` holds; ``what`` says what had not come when waiting was given up (AssertionError)."""
    deadline_s = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not in {HANG_S} s: {text if isinstance(text, str) else text()}")
        time.sleep(poll_s)
