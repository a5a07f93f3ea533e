"""Broker keys about client quotas; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, inert
from oncelog.core.configs.limits import at_least

INT = ConfigType.INT
CLASS = ConfigType.CLASS

QUOTA_KEYS: Final = (
    ConfigKey("quota.window.num", INT, "11", at_least(1)),
    ConfigKey("controller.quota.window.num", INT, "11", at_least(1)),
    ConfigKey("quota.window.size.seconds", INT, "1", at_least(1)),
    ConfigKey("controller.quota.window.size.seconds", INT, "1", at_least(1)),
    inert("client.quota.callback.class", CLASS, None),
)
