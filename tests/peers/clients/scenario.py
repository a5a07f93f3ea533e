"""A client's scenario: a function that uses one client against one address and fails if the broker misleads it.

The same scenarios make the golden corpus (against Apache Kafka, through the recorder) and the interop tests (against
us). A scenario uses its own topic and group names, so that several may run on one broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests import waiting

Scenario = Callable[[str], None]
"""Takes the bootstrap address; raises when something is not as it has to be."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Wrong(AssertionError):
    """A client saw what it must not see."""


def expect(condition: object, text: str) -> None:
    """Fail the scenario with `what` unless `condition` holds; works outside pytest too."""
    if not condition:
        raise Wrong(text)


def expect_equal(actual: object, expected: object, text: str) -> None:
    """Fail the scenario unless both are equal."""
    if actual != expected:
        raise Wrong(f"{text}: {actual!r}, expected {expected!r}")


def wait_until(condition: Callable[[], object], text: str) -> None:
    """Call `condition` (which itself does the waiting, such as a poll) until it is true."""
    try:
        waiting.wait_until(condition, text, poll_s=0)
    except AssertionError as failure:
        raise Wrong(str(failure)) from None
