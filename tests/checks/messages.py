"""Lists the texts of all errors raised in `src`, and refuses those that tell a user of a fault and no way out.

`python -m tests.checks.messages` prints the refused ones; `--list` prints every text with its place and exception. A
text of a class in ``FOR_USERS`` has to give the value that is wrong, or say what to do instead. Texts in
``KAFKA_WORDS`` are those of Apache Kafka.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "oncelog"
FOR_USERS = {
    "BadParameter",
    "BadQuery",
    "BadReport",
    "ClientError",
    "ConfigError",
    "CopyRefused",
    "FormatError",
    "InputError",
    "JaasError",
    "MomentError",
    "OldLogError",
    "OldLogsError",
    "OptionError",
    "PlanRefused",
    "PropertiesError",
    "SetupRefused",
    "SinkError",
    "SparkSourceError",
    "StartRefused",
    "StoreUnusable",
    "TableError",
    "UsageError",
}
FAULT = re.compile(r"\b((is|are|has|have|do|does|was|were) (not|no|neither|too)|invalid|unknown|cannot|no)\b", re.I)
WAY_OUT = re.compile(r"[;:]|\b(must|has to|give|name|use|set|choose|needs?|expected)\b", re.I)
KAFKA_WORDS = {
    "Disabling the 'classic' protocol is not supported.",
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
}


class Message(NamedTuple):
    """The text of an error, with placeholders as in an f-string."""

    place: str
    exception: str
    text: str
    has_value: bool


def messages_of(name: str, source: str) -> Iterator[Message]:
    """Yield the texts that a module raises: the arguments of the exception that contain a literal text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            exception = ast.unparse(node.exc.func)
            for argument in node.exc.args:
                literals = [part.value for part in ast.walk(argument) if isinstance(part, ast.Constant)]
                if any(isinstance(literal, str) and " " in literal for literal in literals):
                    is_constant = isinstance(argument, ast.Constant)
                    text = str(literals[0]) if is_constant else ast.unparse(argument)
                    yield Message(f"{name}:{node.lineno}", exception, text, not is_constant)


def offences(name: str, source: str) -> Iterator[str]:
    """Yield one line for each text for users that states a fault without the value and without a way out."""
    for message in messages_of(name, source):
        is_for_users = message.exception.rpartition(".")[2] in FOR_USERS
        if not is_for_users or message.has_value or message.text in KAFKA_WORDS:
            continue
        if FAULT.search(message.text) and not WAY_OUT.search(message.text):
            yield f'{message.place}: "{message.text}": give the value that is wrong, or say what to do'


def main() -> int:
    """Print the refused texts, or all of them; 1 if any is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print every text with its place and exception")
    options = parser.parse_args()
    refused: list[str] = []
    for path in sorted(SOURCES.rglob("*.py")):
        name, source = str(path.relative_to(ROOT)), path.read_text("utf-8")
        if options.list:
            for message in messages_of(name, source):
                print(message.place, message.exception, message.text)
        refused += offences(name, source)
    print(*refused, sep="\n", file=sys.stderr, end="\n" if refused else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
