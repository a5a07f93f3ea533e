"""Plays a page: one shell runs its blocks in their order, in a directory of its own, as a reader would.

Commands that run until they are stopped (``oncelog serve``, ``oncelog cluster up``) go on in the background once they
have printed something, and are ended with the page; each has to end well. ``pip install`` checks its names only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.snippets.blocks import Block
from tests.snippets.transcripts import commands, differences
from tests.waiting import HANG_S

_UNTIL_STOPPED: Final = re.compile(
    r"oncelog (serve|console|cluster up|stream|mirror (?!verify|offsets)(?!.*--exit)"
    r"|txn watch(?!.*--count)|consume (?!.*--exit))|python stuck\.py"
)
_FILE: Final = re.compile(r"# (\w+\.py)\n")
_SHELL: Final = """\
set -eu -o pipefail
background=()
pip() { "$PYTHON" -m tests.snippets.extras "$@"; }
python() { "$PYTHON" "$@"; }
begin() {
    "$@" > "$LOGS/$((${#background[@]} + 1)).log" 2>&1 &
    background+=($!)
    until [ -s "$LOGS/${#background[@]}.log" ]; do
        kill -0 $! 2> /dev/null || { wait $! || true; cat "$LOGS/${#background[@]}.log" >&2; return 1; }
        sleep 0.02
    done
}
stop() {
    local code
    for process in $(printf '%s\\n' "${background[@]}" | tac); do
        kill -TERM "$process" 2> /dev/null || true
        wait "$process" && code=0 || code=$?
        case $code in 0|130|143) ;; *) echo "a command in the background ended with $code" >&2; cat "$LOGS"/*.log >&2
            return 1 ;; esac
    done
    background=()
}
trap 'stop' EXIT
"""
"""``begin`` starts a command that runs until it is stopped; ``stop`` ends all of them."""


@dataclass
class Stage:
    """The surroundings that a page takes for granted.

    ``replaced`` are texts of the page and their replacements, ``before`` shell code by a text of the block that it
    precedes, ``prelude`` Python code likewise; ``left_out`` lines by a text in them, with the reason.
    """

    replaced: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    prelude: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def play(blocks: Sequence[Block], stage: Stage, directory: Path) -> None:
    """Run the blocks of a page. Fails with the place of the line that failed, and its output."""
    logs = directory.with_name(f"{directory.name}-logs")
    logs.mkdir()
    script = logs / "script.sh"
    script.write_text(_SHELL + "".join(_lines(blocks, stage, logs)), "utf-8")
    bin_directory = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LOGS": str(logs),
        "COLUMNS": "120",
        **stage.environment,
    }
    done = subprocess.run(
        ["bash", str(script)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    reached = [line for line in done.stderr.splitlines() if line.startswith("@@ ")]
    assert done.returncode == 0, (
        f"{reached[-1:]} failed ({done.returncode}):\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    )
    for block in blocks:
        if block.language == "console":
            _compare(block, stage, logs)


def _lines(blocks: Sequence[Block], stage: Stage, logs: Path) -> Iterator[str]:
    for block in blocks:
        yield f"echo '@@ {block.place}' >&2\n"
        yield "".join(f"{code}\n" for text, code in stage.before.items() if text in block.text)
        text = _replaced(block.text, stage)
        if block.language == "python":
            yield _program(block, text, stage, logs)
        elif block.language == "console":
            for number, (command, _) in enumerate(commands(text)):
                yield f"{{ {command}\n}} > {logs / f'{block.line}-{number}.out'} 2>&1 || true\n"
        else:
            for line in text.replace("\\\n", " ").splitlines():
                if not any(part in line for part in stage.left_out):
                    # A function would run in a shell of its own, which a signal ends without its program.
                    program = re.sub(r"^python ", '"$PYTHON" ', line)
                    yield f"begin {program}\n" if _UNTIL_STOPPED.match(line) else f"{line}\n"


def _program(block: Block, text: str, stage: Stage, logs: Path) -> str:
    """The shell's line for a program: one that begins with its file's name is saved there, tests are run by pytest."""
    prelude = "".join(code for part, code in stage.prelude.items() if part in block.text)
    name = _FILE.match(text)
    kind = "test" if re.search(r"^def test_", text, re.MULTILINE) else "program"
    program = logs / f"{kind}_{block.line}.py"
    program.write_text(f"{prelude}\n{text}", "utf-8")
    if name is not None:
        return f"cp {program} {name[1]}\n"
    return f"python -m pytest -q -p no:randomly {program}\n" if kind == "test" else f"python {program}\n"


def _replaced(text: str, stage: Stage) -> str:
    for old, new in stage.replaced.items():
        text = text.replace(old, new)
    return text


def _compare(block: Block, stage: Stage, logs: Path) -> None:
    for number, (command, expected) in enumerate(commands(_replaced(block.text, stage))):
        actual = (logs / f"{block.line}-{number}.out").read_text("utf-8")
        wrong = differences(expected, actual)
        assert not wrong, f"{block.place}: {command}\n{wrong}"
