"""What ``oncelog.admin.transactions`` offers is there, and is not loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oncelog.admin import transactions


@pytest.mark.parametrize("name", transactions.__all__)
def test_every_name_is_where_the_package_says(name: str) -> None:
    found = getattr(transactions, name)
    assert found.__name__ == name
    assert found.__module__.startswith("oncelog.admin.transactions.")


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        transactions.nothing  # noqa: B018  # the attribute's absence is what is tested


@pytest.mark.slow
def test_the_package_alone_loads_none_of_its_modules() -> None:
    script = "import sys, oncelog.admin.transactions; print([m for m in sys.modules if 'transactions.' in m])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
