"""Decoding loads numpy and pyarrow, not pandas: that would cost every task a fifth of a second and 40 MB."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from oncelog.records.builder import build_batch
from oncelog.records.columns.decode import Selection, decode
from oncelog.records.record import Record

records = bytes(build_batch([Record(-1, 1, b"k", b"v", (("h", b"1"),)), Record(-1, 2, None, None)]))
(decoded,) = decode(records, Selection("t", 0, include_headers=True))
assert decoded.rows.num_rows == 2
assert not list(decode(records, Selection("t", 0, start_offset=9)))[0].rows.num_rows
print("pandas" in sys.modules)
"""


def test_pandas_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
