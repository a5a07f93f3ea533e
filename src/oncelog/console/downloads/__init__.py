"""Downloads of records as JSON lines or Parquet: bounded, streamed, and with transaction states on request.

An incomplete file says so at its end and where to continue.
"""

from __future__ import annotations

from typing import Final

PATH: Final = "/messages/download"
