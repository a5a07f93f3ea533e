"""Settings of an import: the options of the command and the importer have them from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncelog.base.units import MIB
from oncelog.legacy.logs.entries import DEFAULT_LIMITS, Limits
from oncelog.records.compression import Codec


class OnCorruption(StrEnum):
    """Effects that a damaged place may have on an import."""

    FAIL = "fail"
    """It ends with an error; what is before the place is imported."""
    SKIP = "skip"
    """It goes on at the next entry that is sound."""
    STOP = "stop"
    """The partition ends there; the others go on."""


class Timestamps(StrEnum):
    """Times of the records: 0.7's messages have none."""

    FILE = "file"
    """When the message's file was last written."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """How a log is imported. Sizes in bytes, times in milliseconds."""

    on_corruption: OnCorruption = OnCorruption.FAIL
    timestamps: Timestamps = Timestamps.FILE
    follow: bool = False
    codec: Codec = Codec.NONE
    batch_bytes: int = 1_000_000
    """The largest batch that the topic takes (its ``max.message.bytes``)."""
    transaction_bytes: int = 32 * MIB
    transaction_ms: int = 1000
    poll_ms: int = 200
    limits: Limits = DEFAULT_LIMITS
