"""Our registry's answers beside Apicurio's, route by route: each difference is in the docs, with its reason."""

from __future__ import annotations

import pytest

from tests.interop.registry.answers import MARK, PAGE, both_answers, table, unexplained

pytestmark = [pytest.mark.slow, pytest.mark.peer("apicurio")]


def test_every_difference_from_apicurio_is_documented_with_its_reason() -> None:
    answers = both_answers()
    assert unexplained(answers) == []
    assert PAGE.read_text("utf-8").partition(MARK)[2].strip() == table(answers).strip()
