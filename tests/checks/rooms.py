"""The rooms in the documentation, as `.importlinter` and the modules themselves describe them.

`python -m tests.checks.rooms` writes the picture in docs/ARCHITECTURE.md and the whole of docs/internals/rooms.md anew:
which room stands on which is what the contracts allow, what a room is for is the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.checks.contracts import row_of

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "oncelog"
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
INSIDE: Final = ROOT / "docs" / "internals" / "rooms.md"
COMMAND: Final = "python -m tests.checks.rooms"
_BEGIN: Final = f"<!-- written by {COMMAND} -->\n"
_END: Final = "<!-- end -->\n"


def contracts(config: Path = ROOT / ".importlinter") -> dict[str, dict[str, list[str]]]:
    """The rows of each contract of rooms, by its package: a room, and what it may import."""
    parser = configparser.ConfigParser()
    parser.read(config, "utf-8")
    results = {}
    for section in parser.sections():
        if parser[section].get("type") == "rooms":
            rows = (line.partition(":") for line in parser[section]["rooms"].split("\n") if line)
            results[parser[section]["package"]] = {
                room: [name.strip() for name in allowed.split(",") if name.strip()] for room, _, allowed in rows
            }
    return results


def floors(rows: Mapping[str, list[str]], top: str = "cli", bottom: str = "base") -> list[list[str]]:
    """The rooms by floor, the lowest first: each stands above all that it may import."""
    below = {room: {row_of(name, rows) or name for name in allowed} - {room} for room, allowed in rows.items()}
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in heights:
            ground = 0 if room == bottom else 1
            heights[room] = max((height(other) + 1 for other in below.get(room, ())), default=ground)
        return heights[room]

    heights[top] = max(height(room) for room in rows if room != top) + 1
    return [[room for room in rows if heights[room] == floor] for floor in range(heights[top] + 1)]


def picture() -> str:
    """The floors, and a table of the rooms."""
    rows = contracts()["oncelog"]
    lines = ["```text"]
    lines += [f"{floor:>2}  {'   '.join(rooms)}" for floor, rooms in reversed([*enumerate(floors(rows))])]
    lines += ["```", "", "| room | what it is | may import, beside `base` |", "|---|---|---|"]
    for room, allowed in rows.items():
        imports = "everything" if room == "cli" else ", ".join(allowed) or "–"
        lines.append(f"| `{room}` | {purpose(place(room))} | {imports} |")
    return "\n".join(lines) + "\n"


def inside() -> str:
    """The page about the insides of the rooms."""
    known = contracts()
    text = f"""# Inside the rooms

Folders and modules of each room, with the first sentence of their docstrings; those that have a contract in
`.importlinter` first, from the lowest up. `{COMMAND}` writes this page.
"""
    for room in known["oncelog"]:
        directory = place(room)
        boxes = sorted(path.stem for path in directory.glob("*") if _is_box(path)) if directory.is_dir() else []
        if boxes:
            order = list(known.get(f"oncelog.{room}", ()))
            boxes.sort(key=lambda box: order.index(box) if box in order else len(order))
            text += f"\n## {room}\n\n| where | what |\n|---|---|\n"
            text += "".join(f"| `{_shown(directory / box)}` | {purpose(directory / box)} |\n" for box in boxes)
    return text


def place(room: str) -> Path:
    """The folder of a room, or the module of a part, without its suffix."""
    return SOURCE / room.replace(".", "/")


def _is_box(path: Path) -> bool:
    return _is_package(path) or (path.suffix == ".py" and not path.stem.startswith("__"))


def _is_package(path: Path) -> bool:
    # A folder that was a package before a pull may still hold byte code.
    return (path / "__init__.py").exists()


def _shown(box: Path) -> str:
    return f"{box.name}/" if _is_package(box) else box.name


def purpose(box: Path) -> str:
    """The first sentence of the docstring of a package or module, given without its suffix."""
    path = box / "__init__.py" if _is_package(box) else box.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    sentence = re.split(r"(?<=[.!?])\s|\n\n", docstring, maxsplit=1)[0]
    return sentence.replace("``", "`").replace("|", r"\|").replace("\n", " ").rstrip(".")


def with_picture(text: str) -> str:
    """``text`` with the picture between the two marks."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return before + begin + picture() + end + after


def main() -> int:
    """Write both anew."""
    ARCHITECTURE.write_text(with_picture(ARCHITECTURE.read_text("utf-8")), "utf-8")
    INSIDE.write_text(inside(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
