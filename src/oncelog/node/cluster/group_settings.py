"""The present settings of each group, recomputed after a change of the broker's or its own configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from oncelog.base.ids import GroupId
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.events import Outbox, Report

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.groups.consumer.settings import GroupLimits
    from oncelog.core.groups.share.settings import ShareGroupSettings

T = TypeVar("T")


class SettingsOfGroups(Generic[T]):
    """The settings of one kind of groups."""

    def __init__(self, metadata: Metadata, outbox: Outbox) -> None:
        self._metadata = metadata
        self._outbox = outbox
        self._config: BrokerConfig | None = None
        self._default: T | None = None
        # Settings of groups with configs of their own, beside these configs.
        self._own: dict[GroupId, tuple[Mapping[str, str], T]] = {}

    def of(self, group_id: GroupId) -> T:
        config, entity = self._metadata.config, self._metadata.image.group_configs.get(group_id)
        if config is not self._config:
            self._config, self._default = config, None
            self._own.clear()
        if entity is None or not entity.configs:
            self._own.pop(group_id, None)
            if self._default is None:
                self._default = self._compute(group_id, config, {}, self._warn)
            return self._default
        cached = self._own.get(group_id)
        if cached is None or cached[0] is not entity.configs:
            settings = self._compute(group_id, config, entity.configs, self._warn)
            cached = self._own[group_id] = (entity.configs, settings)
        return cached[1]

    def _warn(self, warning: str) -> None:
        self._outbox.effects.append(Report("warning", warning))

    def _compute(
        self, group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Callable[[str], None]
    ) -> T:
        raise NotImplementedError


class LimitsOfGroups(SettingsOfGroups["GroupLimits"]):
    """The settings of consumer groups."""

    def _compute(
        self, group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Callable[[str], None]
    ) -> GroupLimits:
        from oncelog.core.groups.consumer.settings import group_limits

        return group_limits(group_id, config, configs, warn)


class ShareSettingsOfGroups(SettingsOfGroups["ShareGroupSettings"]):
    """The settings of share groups."""

    def _compute(
        self, group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Callable[[str], None]
    ) -> ShareGroupSettings:
        from oncelog.core.groups.share.settings import share_group_settings

        return share_group_settings(group_id, config, configs, warn)
