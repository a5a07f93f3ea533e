"""Regular expressions from peers, in RE2's syntax: matching takes linear time, and large expressions are refused.

A peer's expression is never compiled by Python's ``re``, whose matching may take exponential time. Compiling holds the
GIL, on a worker's thread too, so expressions are bounded first.
"""

from __future__ import annotations

from typing import Any, Final

MAX_LENGTH: Final = 500
"""Characters of an expression."""
MAX_UNICODE_CLASSES: Final = 20
r"""Uses of ``\p{…}``. Each takes 0.1 to 0.2 ms to compile; nothing else in 500 characters comes near that."""
MAX_PROGRAM: Final = 2000
"""Instructions of a compiled expression; the worst take 5 ns for each byte of a text."""
_MAX_MEMORY_BYTES: Final = 1 << 20
"""Memory of the compiled expression and of the states during a match."""


class PatternRefused(ValueError):
    """The expression is not valid in RE2, or too large. ``complaint`` is RE2's, empty for a too large one."""

    def __init__(self, message: str, complaint: str = "") -> None:
        self.complaint = complaint
        super().__init__(message)


class Pattern:
    __slots__ = ("_compiled", "program_size")

    def __init__(self, text: str) -> None:
        """Raises PatternRefused."""
        if len(text) > MAX_LENGTH:
            raise PatternRefused(f"a regular expression of {len(text)} characters; the limit is {MAX_LENGTH}")
        if text.count("\\p") + text.count("\\P") > MAX_UNICODE_CLASSES:
            raise PatternRefused(f"more than {MAX_UNICODE_CLASSES} Unicode classes in a regular expression")
        self._compiled = _compile(text)
        self.program_size: int = self._compiled.programsize
        if self.program_size > MAX_PROGRAM:
            raise PatternRefused(
                f"a regular expression of {self.program_size} instructions; the limit is {MAX_PROGRAM}"
            )

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None

    def occurs_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None


def _compile(text: str) -> Any:
    import re2  # type: ignore[import-untyped]  # no types shipped; imported here because most processes never need it

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # groups are never read, and matching is faster without them
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        complaint = error.args[0].decode("utf-8", "replace")
        raise PatternRefused(f"not a regular expression of RE2: {complaint}", complaint) from None
    except UnicodeEncodeError as error:
        raise PatternRefused(f"not a regular expression of RE2: {error.reason}", "lone surrogate") from None
    finally:
        # The module's cache would keep 128 expressions, with up to 8 MiB each.
        re2.purge()
