"""The coordinators' settings from the broker's configuration and the cluster's features."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.groups.settings import SETTING_KEYS as GROUP_KEYS
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.transactions.settings import SETTING_KEYS as TRANSACTION_KEYS
from oncelog.core.transactions.settings import TransactionSettings

TRANSACTION_VERSION: Final = "transaction.version"


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Values by the keys that the machine names, in its units."""
    return GroupSettings(**{field: int(config.get(key)) * factor for field, (key, factor) in GROUP_KEYS.items()})


def transaction_settings(config: BrokerConfig, image: ClusterImage) -> TransactionSettings:
    """Values by the keys that the machine names, and the finalized level of ``transaction.version``."""
    values = {field: config.get(key) for field, key in TRANSACTION_KEYS.items()}
    return TransactionSettings(**values, transaction_version=transaction_version(image))


def transaction_version(image: ClusterImage) -> int:
    """The finalized level; a feature that is not finalized is at 0."""
    return image.features.get(TRANSACTION_VERSION, 0)
