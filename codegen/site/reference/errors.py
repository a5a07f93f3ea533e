"""The reference of error codes: what each means, and the APIs that answer it."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from codegen.site.reference.markdown import code, table
from oncelog.base.errors import ErrorCode
from oncelog.client.errors import EXPLANATIONS
from oncelog.handlers.registry import APIS

_INTRODUCTION: Final = """# Error codes

Codes and names are Apache Kafka's. [Compatibility](../COMPATIBILITY.md#apis) says when each API answers which."""


def page() -> str:
    """The page of all codes."""
    answered: dict[ErrorCode, list[str]] = defaultdict(list)
    for api in APIS:
        for error in api.load_errors():
            answered[error].append(f"[{api.name}](../COMPATIBILITY.md#{api.name.lower()})")
    rows = [
        (code(error.name), str(error.value), EXPLANATIONS.get(error, ""), ", ".join(answered[error]))
        for error in sorted(ErrorCode)
    ]
    return "\n\n".join([_INTRODUCTION, table(["error", "code", "meaning", "answered by"], rows)])
