"""The wheel of the checkout that runs on several versions of PySpark work with."""

from __future__ import annotations

import pytest

from tests.spark.versions.environments import installed_wheel


@pytest.mark.integration
@pytest.mark.slow
def test_each_run_has_a_wheel_of_its_own() -> None:
    with installed_wheel(print) as first:
        with installed_wheel(print) as second:
            assert (second / "oncelog" / "__init__.py").exists()
        assert (first / "oncelog" / "__init__.py").exists()
        assert not second.exists()
    assert not first.exists()
