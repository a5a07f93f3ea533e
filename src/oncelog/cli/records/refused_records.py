"""Records that the broker refuses while ``produce`` continues with the others.

Refusals for size, timestamp or key are printed and counted, and the exit code becomes 1. Any other would hit every
record, so it ends the command at once.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.text import counted
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import ClientError
from oncelog.client.machine.pending_batch import BatchOutcome, Failed, record_size
from oncelog.client.machine.producer import ABOUT_RECORDS
from oncelog.client.programs.delivery import DeliveryFailed

_MOST_SHOWN: Final = 10


class RefusedRecords:
    """Collects a producer's outcomes; ``raise_failure`` and ``finish`` raise ClientError."""

    def __init__(self) -> None:
        self._refused = 0
        self._failures = 0
        self._fatal: DeliveryFailed | None = None

    def note(self, outcome: BatchOutcome) -> None:
        """Counts the records of a failure, and prints the first few refusals."""
        if not isinstance(outcome, Failed):
            return
        error = DeliveryFailed(outcome)
        if outcome.error_code not in ABOUT_RECORDS or outcome.maybe_appended:
            self._fatal = self._fatal or error
            return
        self._refused += len(outcome.records)
        self._failures += 1
        if self._failures <= _MOST_SHOWN:
            sizes = [record_size(record) for record in outcome.records]
            size = f" (about {sizes[0]:,} bytes)" if len(sizes) == 1 else ""
            print_line(f"oncelog: {error}{size}", err=True, flush=True)

    def raise_failure(self) -> None:
        """Raises the first failure that is not about single records."""
        if self._fatal is not None:
            raise self._fatal

    def finish(self) -> None:
        """Raises unless every record was written."""
        self.raise_failure()
        if self._refused:
            raise ClientError(f"the broker refused {counted(self._refused, 'record')}; all others are written")
