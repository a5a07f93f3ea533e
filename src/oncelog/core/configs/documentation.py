"""The documentation of keys in DescribeConfigs: Apache Kafka's own text, but where the key does something else here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.core.configs.kinds import ConfigKey

NO_EFFECT: Final = "(It has no effect in oncelog.)"


def documentation_of(key: ConfigKey, texts: Mapping[str, str]) -> str | None:
    """The documentation of a key; ``texts`` are Apache Kafka's for keys of its resource. None where it has none."""
    if key.documentation:
        return key.documentation
    text = texts.get(key.name)
    return f"{text} {NO_EFFECT}" if key.inert and text is not None else text
