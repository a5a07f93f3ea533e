"""Errors raised when bytes contradict the format they claim to have."""

from __future__ import annotations


class CorruptBatch(Exception):
    """Bytes that are no record batch v2, or a batch whose contents contradict its header."""


class TruncatedBatch(CorruptBatch):
    """The buffer ends before the batch does. The bytes there may be the beginning of a sound batch."""


class UnsupportedMagic(CorruptBatch):
    """A batch or message set of another format version; ``magic`` says which (0 and 1 are Kafka's before 0.11)."""

    def __init__(self, magic: int) -> None:
        self.magic = magic
        super().__init__(f"record batch with magic {magic}: only magic 2 is read")


class TooMuchOutput(CorruptBatch):
    """Decompressing would give more bytes than the caller allows; nothing of that size was allocated."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(f"decompressed size exceeds {max_bytes} bytes")


class InvalidSet(CorruptBatch):
    """A message set whose bytes are sound, but that says what none may: a wrapper of nothing, or in another."""


class TooMuchWork(Exception):
    """Inspecting the records would take longer than the caller allows; they may be sound."""
