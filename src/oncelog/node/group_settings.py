"""The group coordinator's settings from the broker's configuration."""

from __future__ import annotations

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.groups.model import SETTING_KEYS, GroupSettings


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Values by the keys that ``SETTING_KEYS`` names, in the units of ``GroupSettings``."""
    values = {field: int(config.get(key)) * factor for field, (key, factor) in SETTING_KEYS.items()}
    return GroupSettings(**values)
