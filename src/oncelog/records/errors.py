"""Errors for bytes that contradict their format."""

from __future__ import annotations


class CorruptBatch(Exception):
    """Bytes that are not a record batch v2, or a batch whose content contradicts its header."""


class TruncatedBatch(CorruptBatch):
    """The buffer ends inside a batch, whose beginning may be sound."""


class UnsupportedMagic(CorruptBatch):
    """A batch or message set of another format version ``magic`` (0 and 1 are Kafka's before 0.11)."""

    def __init__(self, magic: int) -> None:
        self.magic = magic
        super().__init__(f"record batch with magic {magic}: only magic 2 is read")


class TooMuchOutput(CorruptBatch):
    """Decompression would exceed the caller's bound; nothing of that size was allocated."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(f"decompressed size exceeds {max_bytes} bytes")


class RecordTooLarge(Exception):
    """A record is larger than its topic allows; the batch is sound."""

    def __init__(self, size_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"a record of {size_bytes} bytes in a compressed batch exceeds max.decompressed.message.bytes={max_bytes}"
        )


class InvalidSet(CorruptBatch):
    """A message set that is sound as bytes but invalid: an empty wrapper, or nested wrappers."""


class TooMuchWork(Exception):
    """Inspecting the records would take longer than the caller allows."""
