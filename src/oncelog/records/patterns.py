"""Regular expressions that peers send: RE2's, which match in time linear in the text, and refused when they are large.

The rule: no peer's expression is compiled by Python's ``re``, whose matching may take exponential time. Compiling holds
Python's lock, on a worker's thread too, so an expression is bounded before it is compiled. No expression is remembered:
the cache of the ``re2`` module would keep 128 of them, with up to 8 MiB each.
"""

from __future__ import annotations

from typing import Any, Final

MAX_LENGTH: Final = 500
"""Characters of an expression."""
MAX_UNICODE_CLASSES: Final = 20
r"""Uses of ``\p{…}``. Each takes 0.1 to 0.2 ms to compile; nothing else in 500 characters comes near that."""
MAX_PROGRAM: Final = 2000
"""Instructions of a compiled expression. The worst of them take 5 ns each for every byte of a text."""
_MAX_MEMORY_BYTES: Final = 1 << 20
"""The memory of the compiled expression, with the states that matching builds."""


class PatternRefused(ValueError):
    """The expression is not one of RE2, or is too large. ``complaint`` is RE2's, empty for one that is too large."""

    def __init__(self, message: str, complaint: str = "") -> None:
        self.complaint = complaint
        super().__init__(message)


class Pattern:
    """A compiled expression."""

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
        """True if the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None


def _compile(text: str) -> Any:
    import re2  # type: ignore[import-untyped]  # no types shipped; imported here because most processes never need it

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # groups are never read, and matching is quicker without them
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        complaint = error.args[0].decode("utf-8", "replace")
        raise PatternRefused(f"not a regular expression of RE2: {complaint}", complaint) from None
    except UnicodeEncodeError as error:
        raise PatternRefused(f"not a regular expression of RE2: {error.reason}", "lone surrogate") from None
    finally:
        re2.purge()
