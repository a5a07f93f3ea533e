"""The committed modules are what codegen makes of the installed kio."""

from __future__ import annotations

import pytest
from codegen.generate import TARGET, generate


@pytest.mark.slow
def test_the_committed_modules_equal_a_fresh_generation() -> None:
    fresh = generate()
    committed = {str(path.relative_to(TARGET)): path.read_text() for path in TARGET.glob("messages/*.py")}
    committed["apis.py"] = (TARGET / "apis.py").read_text()
    assert sorted(committed) == sorted(fresh)
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "run `python -m codegen`"
