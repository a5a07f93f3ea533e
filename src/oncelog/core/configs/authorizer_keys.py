"""Broker keys about the authorizer; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigType, inert

STRING = ConfigType.STRING

AUTHORIZER_KEYS: Final = (inert("authorizer.class.name", STRING, ""),)
