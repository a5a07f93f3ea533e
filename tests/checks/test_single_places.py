from __future__ import annotations

import pytest

from tests.checks.single_places import main, offences

OTHER = "src/oncelog/cli/other.py"


def test_every_name_is_used_in_its_place() -> None:
    assert main() == 0


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "log = print",
        "sys.stdout.write('x')",
        "sys.stderr.buffer.write(b'x')",
        "typer.echo('x')",
        "subprocess.run([sys.executable, '-m', 'oncelog'])",
        "shlex.join(words)",
    ],
)
def test_another_place_is_refused(source: str) -> None:
    assert len([*offences(OTHER, source)]) == 1


def test_the_place_itself_is_not() -> None:
    assert not [*offences("src/oncelog/cli/support/terminal.py", "sys.stderr.write('x')")]
    assert not [*offences(OTHER, "sys.stdout.isatty()\nprint_line('x')")]
