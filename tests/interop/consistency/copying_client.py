"""The calls of a transactional copier to a client library: a dozen calls, the same for every client.

The rule: a client says by the exception what may be done next. :class:`Abortable`: abort, and go on. :class:`GiveUp`:
this instance is fenced or cannot know how its transaction ended; another one has to take over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from tests.waiting import HANG_S

SOURCE: Final = "source"
COPY: Final = "copy"
GROUP: Final = "copiers"
COPY_PARTITIONS: Final = 3
SESSION_TIMEOUT_MS: Final = 1_500
HEARTBEAT_MS: Final = 200
PATIENCE_S: Final = HANG_S / 4
"""For one operation, over its retries; brokers are killed meanwhile."""


class Taken(NamedTuple):
    """A record of the source."""

    partition: int
    offset: int
    value: str


class Abortable(Exception):
    """The transaction has to be aborted; the client is usable after that."""


class GiveUp(Exception):
    """This instance cannot go on."""


@dataclass(frozen=True)
class Role:
    """The copier that a process is. ``partition`` None: it subscribes, and takes what the group gives it."""

    bootstrap: str
    transactional_id: str
    partition: int | None
    sources: int
    transaction_timeout_ms: int
    security: Mapping[str, str] = field(default_factory=dict)
    """Settings of TLS and SASL by librdkafka's names; none for PLAINTEXT."""


Wrote = Callable[[str, int], None]
"""Told of every record acknowledged: its value and its offset."""


class CopyingClient(Protocol):
    """A consumer and a transactional producer. From one thread."""

    def start(self) -> None:
        """Fence earlier instances of the transactional id, and be ready to take."""

    def take(self, most: int) -> Sequence[Taken]:
        """Up to so many records, those that follow what was taken before; possibly none."""

    def rewind(self) -> None:
        """To what the group has committed, in every partition held."""

    def committed(self) -> Mapping[int, int]:
        """The offsets that the group has committed of the source; waits for transactions that have offsets pending."""

    def begin(self) -> None:
        """Begin a transaction."""

    def write(self, partition: int, value: str) -> None:
        """One record into the copy."""

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """Source partition → next offset, with the transaction, as the member that took the records."""

    def flush(self) -> None:
        """Every record is acknowledged, and told of."""

    def commit(self) -> None:
        """Until the answer is known."""

    def abort(self) -> None:
        """Until the answer is known."""

    def close(self) -> None:
        """Leave the group."""
