"""The refusal of an append by the producer state."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode


class ProducerRefusal(Exception):
    """An expected refusal; nothing changed. ``error_code`` is what the protocol answers."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        self.error_code = error_code
        self.message = message
        super().__init__(message)
