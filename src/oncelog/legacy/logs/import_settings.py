"""Settings of an import, shared by the command and the importer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncelog.base.units import MIB
from oncelog.legacy.logs.entries import DEFAULT_LIMITS, Limits
from oncelog.records.compression import Codec


class OnCorruption(StrEnum):
    """The reaction of an import to damage."""

    FAIL = "fail"
    """The import fails; everything before the damage is imported."""
    SKIP = "skip"
    """The import continues at the next valid entry."""
    STOP = "stop"
    """The partition stops there; the others continue."""


class Timestamps(StrEnum):
    """Source of record timestamps: 0.7's messages have none."""

    FILE = "file"
    """The modification time of the message's file."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of an import. Sizes in bytes, times in milliseconds."""

    on_corruption: OnCorruption = OnCorruption.FAIL
    timestamps: Timestamps = Timestamps.FILE
    follow: bool = False
    codec: Codec = Codec.NONE
    batch_bytes: int = 1_000_000
    """The topic's ``max.message.bytes``."""
    transaction_bytes: int = 32 * MIB
    transaction_ms: int = 1000
    poll_ms: int = 200
    limits: Limits = DEFAULT_LIMITS
