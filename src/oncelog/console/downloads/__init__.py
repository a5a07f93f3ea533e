"""Downloads of records as JSON lines and Parquet: bounded, streamed, with the states of transactions if asked for.

``selection`` says what an address selects, ``states`` what became of each batch, ``reading`` goes through the records
up to the bounds of one download; ``json_lines`` and ``parquet`` write them. Routes are ``serving``'s.

The rule: a file that does not have everything says so at its end, and where to go on; one that breaks off is no whole
answer for who loads it.
"""

from __future__ import annotations

from typing import Final

PATH: Final = "/messages/download"
