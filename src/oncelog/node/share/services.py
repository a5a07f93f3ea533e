"""The parts of a node that serve share groups (KIP-932), made when the first of their requests comes; the share
coordinators with the topic ``__share_group_state``, of which they hold partitions for other brokers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oncelog.base.ids import SHARE_GROUP_STATE
from oncelog.handlers.broker import waits
from oncelog.node.coordinators.runner import CoordinatorServices

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ImageDelta
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.brokers.messages import BrokerMessages
    from oncelog.node.cluster.group_settings import ShareSettingsOfGroups
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.coordinators.share_state_coordinators import ShareStateCoordinators
    from oncelog.node.coordinators.share_state_requests import ShareStateRequests
    from oncelog.node.kernel.tasks import Task
    from oncelog.node.logs.delayed_fetches import DelayedFetches
    from oncelog.node.share.persister import SharePersister
    from oncelog.node.share.share_partitions import SharePartitions


class ShareServices:
    def __init__(
        self,
        services: CoordinatorServices,
        messages: BrokerMessages,
        metadata_log: MetadataLog,
        delayed_fetches: DelayedFetches,
        links: BrokerLinks,
        settings: Callable[[], ShareSettingsOfGroups],
    ) -> None:
        self._services = services
        self._messages = messages
        self._metadata_log = metadata_log
        self._delayed_fetches = delayed_fetches
        self._links = links
        self._settings = settings

    @cached_property
    def states(self) -> ShareStateCoordinators:
        """The share coordinators of this broker."""
        from oncelog.node.coordinators.share_state_coordinators import ShareStateCoordinators, share_state_settings

        services = self._services
        return ShareStateCoordinators(share_state_settings(services.metadata.config), services, self._messages)

    @property
    def has_states(self) -> bool:
        """True once the topic of their states exists, or was asked for."""
        return "states" in self.__dict__ or SHARE_GROUP_STATE in self._services.metadata.image.topics

    @cached_property
    def persister(self) -> SharePersister:
        """The way to the states of share partitions, wherever their coordinator is."""
        from oncelog.node.share.persister import SharePersister

        services = self._services
        return SharePersister(
            self._messages,
            services.metadata,
            self._metadata_log,
            services.deadlines,
            lambda group_id: self._settings().of(group_id).initialize_retry_ms,
        )

    @property
    def has_partitions(self) -> bool:
        """True once a client has fetched for a share group."""
        return "partitions" in self.__dict__

    @cached_property
    def partitions(self) -> SharePartitions:
        """The share partitions that this broker leads."""
        from oncelog.node.share.dead_letter_appends import DeadLetterAppends
        from oncelog.node.share.dead_letters import DeadLetterWriter
        from oncelog.node.share.share_partitions import SharePartitions

        services, settings = self._services, self._settings()
        metadata, partitions, deadlines = services.metadata, services.partitions, services.deadlines
        appends = DeadLetterAppends(metadata, partitions, services.group_commit, self._links, deadlines)
        return SharePartitions(
            metadata,
            partitions,
            services.group_commit,
            self._delayed_fetches,
            deadlines,
            services.runnable,
            self.persister,
            settings,
            DeadLetterWriter(metadata, partitions, self._metadata_log, deadlines, services.outbox, settings, appends),
        )

    @cached_property
    def _state_requests(self) -> ShareStateRequests:
        from oncelog.node.coordinators.share_state_requests import ShareStateRequests

        return ShareStateRequests(lambda: self.persister, self._services.runnable)

    def follow(self, delta: ImageDelta) -> None:
        """Follow a change of the image, after the logs have."""
        if self.has_partitions:
            self.partitions.follow(delta)
        if delta.deleted and self.has_states:
            self.states.topics_deleted({topic.topic_id for topic in delta.deleted})
        if SHARE_GROUP_STATE in delta.altered and "persister" in self.__dict__:
            self.persister.coordinators_changed()

    def connection_closed(self, connection_id: int) -> None:
        if self.has_partitions:
            self.partitions.connection_closed(connection_id)

    def parks(self) -> Mapping[type, Callable[[Task, Any], None]]:
        """The waits of handlers that are parked here."""
        return {
            waits.KeepShareStates: lambda task, wait: self.states.park(task, wait),
            waits.PersistShareStates: lambda task, wait: self._state_requests.park(task, wait),
            waits.UseShares: lambda task, _wait: self._services.runnable.wake(task, self.partitions),
            waits.UntilAcknowledged: lambda task, wait: self.partitions.park(task, wait),
        }
