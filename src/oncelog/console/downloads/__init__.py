"""Downloads of records as JSON lines or Parquet: bounded, streamed, and with transaction states on request.

The rule: an incomplete file says so at its end and where to continue. A file that breaks off is not a valid answer for
a program that loads it.
"""

from __future__ import annotations

from typing import Final

PATH: Final = "/messages/download"
