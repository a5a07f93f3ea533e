"""A command line that is suggested to a user, as a shell and then the command line of oncelog read it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from oncelog.cli.commands import COMMANDS, load_command


def shell_words(command: str) -> list[str]:
    """The words of a command as bash makes them; nothing of it is run."""
    script = f"set -f; printf '%s\\0' {command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"})
    return [word.decode(errors="surrogateescape") for word in done.stdout.split(b"\0")[:-1]]


def parsed(command: str) -> Mapping[str, Any]:
    """The parameters that a command of oncelog is called with. Raises click's errors of usage."""
    program, name, *rest = shell_words(command)
    assert program == "oncelog"
    result = load_command(name, COMMANDS[name].target)
    while hasattr(result, "commands"):
        name, *rest = rest
        result = result.commands[name]
    params: Mapping[str, Any] = result.make_context(name, rest).params
    return params
