"""The examples of the documentation, run as they stand there, with names of a test's own in place of theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tests.peers.supply import ROOT

_EXAMPLES: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippet(page: str, containing: str, changes: Mapping[str, str]) -> str:
    """The example of a page that contains a text, with texts in it replaced, each of which has to be there."""
    result = [code for code in _EXAMPLES.findall((ROOT / page).read_text("utf-8")) if containing in code]
    assert len(result) == 1, f"{page} has {len(result)} examples with {containing!r}"
    code = str(result[0])
    for text, other in changes.items():
        assert text in code, f"the example of {page} with {containing!r} has no {text!r}"
        code = code.replace(text, other)
    return code


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run an example as a program of the user's, with variables that it has from before; all of them after it."""
    variables = {"__name__": "__main__", **names}
    exec(code, variables)
    return variables
