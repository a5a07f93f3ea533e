"""Words of commands that a user is told to copy. Names are made of anything: ``$(reboot)`` and ``-f`` are groups.

The rule: a POSIX shell reads each word back as the name, and the command line takes none for an option. A name with
characters that act on a terminal is written in ``$'…'``, which bash, zsh, ksh, BusyBox and POSIX.1-2024 know.
"""

from __future__ import annotations

import shlex


def word(text: str) -> str:
    """A name as one word."""
    if not text.isprintable():
        return f"$'{''.join(map(_escaped, text))}'"
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)  # zsh looks for =programs


def option(name: str, value: object) -> str:
    """A long option with its value."""
    return f"{name}{'=' if str(value).startswith('-') else ' '}{word(str(value))}"


def argument(*names: str) -> str:
    """Names as arguments; where one begins with a dash they come behind ``--``, so they have to be the last ones."""
    return ("-- " if any(name.startswith("-") for name in names) else "") + " ".join(map(word, names))


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    data = character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)
