"""Settings of a transactional producer, and prepared transactions as values to be stored (KIP-939)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

from oncelog.base.units import INT16_MAX, INT32_MAX, INT64_MAX, MINUTE_MS
from oncelog.client.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings of a transactional producer. ``two_phase`` transactions never time out (KIP-939)."""

    transactional_id: str
    timeout_ms: int = MINUTE_MS
    two_phase: bool = False

    def __post_init__(self) -> None:
        if not self.transactional_id:
            raise ConfigError("a transactional id must not be empty")
        if not 0 < self.timeout_ms <= INT32_MAX:
            raise ConfigError(f"transaction.timeout.ms={self.timeout_ms} is out of range")


class StoredTransaction(NamedTuple):
    """A prepared transaction, stored with the decision on its outcome; ``str`` fits one column of a table."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of ``str``. Raises ConfigError."""
        number, _, rest = text.partition(":")
        epoch, colon, name = rest.partition(":")
        digits = number.isascii() and number.isdigit() and epoch.isascii() and epoch.isdigit()
        if not colon or not digits or int(number) > INT64_MAX or int(epoch) > INT16_MAX:
            raise ConfigError(f"{text[:80]!r} is not a stored transaction (producer id:epoch:transactional id)")
        return cls(name, int(number), int(epoch))


class Ended(Enum):
    """The outcome of ``complete``."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    NOTHING_PREPARED = "nothing was prepared: it has been ended before, or never begun"
