"""The options that name a command's cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
BOOTSTRAP_NAMES: Final = ("--bootstrap-server", "--bootstrap-servers", "-b")
BOOTSTRAP_VARIABLE: Final = "ONCELOG_BOOTSTRAP_SERVERS"
COMMAND_CONFIG_VARIABLE: Final = "ONCELOG_COMMAND_CONFIG"


def cluster_options(bootstrap: str, properties: Sequence[str] | None = None, command_config: Path | None = None) -> str:
    """The options for the same cluster in a suggested command, without secrets."""
    from oncelog.base.notation.shell_words import option

    text = "" if bootstrap == DEFAULT_BOOTSTRAP else f" {option('--bootstrap-servers', bootstrap)}"
    if command_config is not None:
        text += f" {option('--command-config', command_config)}"
    return text + (" -X …" if properties else "")
