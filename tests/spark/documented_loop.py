"""The loop of ``docs/spark-source.md`` that runs a query until nothing is left, as it stands there."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Final

from tests.peers.supply import ROOT

_LOOP: Final = re.compile(r"```python\n(?P<code> *while True:\n.*?)```", re.DOTALL)


def run_documented_loop(writer: Any) -> None:
    """Start the query of a ``DataStreamWriter``, classic or of Connect, as often as the loop does."""
    match = _LOOP.search((ROOT / "docs" / "spark-source.md").read_text("utf-8"))
    assert match is not None
    exec(textwrap.dedent(match["code"]), {"writer": writer})
