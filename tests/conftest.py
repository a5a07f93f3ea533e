"""What every test run shares: Hypothesis profiles, and which tests of other worlds (Java, Go, npm) can run here."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("oncelog", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("long", settings.get_profile("oncelog"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "oncelog"))


def _missing_for_java() -> str | None:
    if os.environ.get("ONCELOG_KAFKA_JARS"):
        return None if shutil.which("java") else "Java is not installed: Apache Kafka's tools are left out"
    if os.environ.get("CI"):
        return "left out in CI: Apache Kafka's jars come from Maven"
    if not (shutil.which("java") and shutil.which("mvn")):
        return "Java 17 and Maven are needed for Apache Kafka's tools"
    return None


def _missing_for_peers() -> str | None:
    if os.environ.get("CI"):
        return "left out in CI: clients from the Go and npm registries"
    if not (shutil.which("go") or shutil.which("npm")):
        return "Go or npm is needed for franz-go and KafkaJS"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, saying why; keep tests that start a JVM in one worker."""
    missing = {"java": _missing_for_java(), "peer": _missing_for_peers()}
    for item in items:
        for marker, reason in missing.items():
            if reason is not None and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("java"):
            item.add_marker(pytest.mark.xdist_group("java"))
