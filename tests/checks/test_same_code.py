"""A change of words may rename; it may not exchange two variables, nor change anything else."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.checks.reaching import Difference
from tests.checks.same_code import Renames, compare


def renames(old: str, new: str) -> Renames:
    counts = Renames(Counter(), Counter())
    compare(old, new, counts)
    return counts


def test_variables_parameters_and_methods_may_have_other_names() -> None:
    old = "class Log:\n def look(self, one):\n  return [x for x in one if x.found]\n"
    new = "class Log:\n def read(self, batch):\n  return [record for record in batch if record.is_visible]\n"
    assert ("look", "read") in renames(old, new).names


def test_a_variable_may_become_two_when_no_value_flows_between_them() -> None:
    old = "def f(a, b):\n for one in a:\n  g(one)\n for one in b:\n  h(one)\n"
    new = "def f(a, b):\n for topic in a:\n  g(topic)\n for group in b:\n  h(group)\n"
    assert renames(old, new).names == {("one", "topic"): 2, ("one", "group"): 2}


def test_docstrings_comments_and_imports_do_not_count() -> None:
    old = 'import b\nimport a\ndef f():\n """Do it."""\n return a.x + b.x\n'
    new = "import a, b\ndef f():\n # Why.\n return a.x + b.x\n"
    assert renames(old, new) == Renames(Counter(), Counter())


def test_texts_are_told_to_the_reader() -> None:
    texts = renames("def f(a):\n raise E(f'no {a}')\n", "def f(a):\n raise E(f'{a!r} is not a topic')\n").texts
    assert texts == {("f'no {a}'", "f'{a!r} is not a topic'"): 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(a, b):\n return a - b\n", "def f(b, a):\n return a - b\n"),
        ("def f(a):\n for x in a:\n  g(x)\n for x in a:\n  h(x)\n",
         "def f(a):\n for x in a:\n  g(x)\n for y in a:\n  h(x)\n"),
        ("def f(a, b):\n return lambda x: (a, b, x)\n", "def f(c, b):\n return lambda a: (c, a, a)\n"),
        ("def f():\n try:\n  x = 1\n  g()\n except E:\n  x = 2\n return x\n",
         "def f():\n try:\n  y = 1\n  g()\n except E:\n  x = 2\n return x\n"),
        ("def f():\n return 1\n", "def f():\n return 2\n"),
        ("def f():\n return 1\n", "def f():\n return True\n"),
        ("def f():\n return g(a, b)\n", "def f():\n return g(a)\n"),
        ("A = 1\nB = 2\n", "A = 1\nA = 2\n"),
        ("def look(): pass\n", "def print(): pass\n"),
        ("def f(a):\n return a < 1\n", "def f(a):\n return a <= 1\n"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(old: str, new: str) -> None:
    with pytest.raises(Difference):
        compare(old, new, Renames(Counter(), Counter()))
