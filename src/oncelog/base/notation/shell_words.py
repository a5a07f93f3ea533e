"""Shell words for commands that a user may copy. Groups can have any name, ``$(reboot)`` and ``-f`` included.

A POSIX shell reads each word back as the name, and the command line never mistakes one for an option. A name with
terminal control characters is written in ``$'…'``, which bash, zsh, ksh, BusyBox and POSIX.1-2024 support.
"""

from __future__ import annotations

import shlex


def word(text: str) -> str:
    if not text.isprintable():
        return f"$'{''.join(map(_escaped, text))}'"
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)  # zsh expands =programs


def option(name: str, value: object) -> str:
    return f"{name}{'=' if str(value).startswith('-') else ' '}{word(str(value))}"


def argument(*names: str) -> str:
    """Names as the last arguments of a command, after ``--`` if one begins with a dash."""
    return ("-- " if any(name.startswith("-") for name in names) else "") + " ".join(map(word, names))


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    # Surrogate escapes stand for bytes of a name that is not UTF-8.
    data = character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)
