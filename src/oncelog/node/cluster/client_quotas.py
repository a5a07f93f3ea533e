"""Client quotas on this broker: the limits set in the image, and the usage measured against them.

Each broker measures for itself, as in Apache Kafka: 1 MB/s is 1 MB/s at every broker. Usage is counted only while some
quota is set (``enabled``).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import TYPE_CHECKING, Final

from oncelog.base.units import INT32_MAX, SECOND_MS
from oncelog.core.controller.entities.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    address_text,
    quotas_of,
)
from oncelog.core.controller.image.cluster_image import configs_of
from oncelog.core.quotas.connection_rates import ConnectionRates
from oncelog.core.quotas.quotas import Charge, MutationQuota, RateQuota
from oncelog.core.quotas.quotas import Usage as Usage
from oncelog.core.quotas.rates import Windows

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image.client_entities import ClientEntity
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.handlers.broker.limits import Requester

_PERCENT_OF_A_NANOSECOND: Final = 100 / 1e9


def user_of(principal: str) -> str:
    """The user name in a principal: ``alice`` of ``User:alice``."""
    return principal.partition(":")[2]


class ClientQuotas:
    """Implements ``handlers.broker.limits.ClientLimits``."""

    def __init__(self, config: BrokerConfig, image: ClusterImage) -> None:
        windows = Windows(config.get("quota.window.num"), config.get("quota.window.size.seconds") * SECOND_MS)
        self.produce = RateQuota(windows)
        self.fetch = RateQuota(windows)
        self.request = RateQuota(windows, max_throttle_ms=windows.size_ms)
        size_ms = config.get("controller.quota.window.size.seconds") * SECOND_MS
        self.mutations = MutationQuota(Windows(config.get("controller.quota.window.num"), size_ms))
        self.connections = ConnectionRates(windows)
        self._by_key = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutations.limits,
        }
        self.enabled = False
        self.measures_time = False
        """True while a request-time quota is set: the runtime then reports how long requests took."""
        self.follow(image, image.client_entities)

    def follow(self, image: ClusterImage, changed: Iterable[ClientEntity]) -> None:
        for entity in changed:
            quotas = quotas_of(configs_of(image, entity))
            if entity.ip is not None:
                self.connections.set_limit(address_text(entity.ip), quotas.get(CONNECTION_CREATION_RATE))
                continue
            for key, limits in self._by_key.items():
                limits.set((entity.user, entity.client_id), quotas.get(key))
        self.enabled = any(self._by_key.values())
        self.measures_time = bool(self.request.limits)

    def took(self, requester: Requester, nanoseconds: int) -> int:
        """Count a request's time; returns the client's throttle time in ms."""
        percent = nanoseconds * _PERCENT_OF_A_NANOSECOND
        return self.request.record(user_of(requester.principal), requester.client_id, percent, requester.now_ms)

    def max_fetch_bytes(self, requester: Requester) -> int | None:
        limit = self.fetch.max_unthrottled(user_of(requester.principal), requester.client_id)
        return None if limit is None or not limit < INT32_MAX else floor(limit)

    def fetched(self, requester: Requester, size_bytes: int) -> int:
        throttle_ms = self.returned(requester, size_bytes)
        if throttle_ms:
            # A throttled fetch returns no records, so they must not count.
            user = user_of(requester.principal)
            self.fetch.record_unchecked(user, requester.client_id, -size_bytes, requester.now_ms)
        return throttle_ms

    def returned(self, requester: Requester, size_bytes: int) -> int:
        user, client_id, now_ms = user_of(requester.principal), requester.client_id, requester.now_ms
        time_ms = self.took(requester, requester.spent_ns)
        bytes_ms = self.fetch.record(user, client_id, size_bytes, now_ms)
        throttle_ms = max(time_ms, bytes_ms)
        if throttle_ms:
            (self.fetch if bytes_ms > time_ms else self.request).throttles.add(throttle_ms)
        return throttle_ms

    def charge(self, requester: Requester, partitions: int, *, strict: bool) -> Charge:
        user = user_of(requester.principal)
        return self.mutations.charge(user, requester.client_id, partitions, requester.now_ms, strict=strict)
