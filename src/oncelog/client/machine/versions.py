"""Chooses request versions for one broker: the highest that both sides have (KIP-35).

Until the broker has announced its versions, only ApiVersions may be sent. An older broker answers an unknown
ApiVersions version with UNSUPPORTED_VERSION in the format of version 0, with its own range (KIP-511).
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.client.errors import UnsupportedRequest
from oncelog.wire.message import Request
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


class Versions:
    def __init__(
        self,
        ranges: dict[int, tuple[int, int]],
        features: dict[str, int] | None = None,
        supported_features: dict[str, tuple[int, int]] | None = None,
    ) -> None:
        self.ranges = ranges
        self.features = features or {}
        """Finalized levels by name."""
        self.supported_features = supported_features or {}
        """Lowest and highest level that the broker supports, by name."""

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Versions:
        """The versions in an ApiVersions response without error."""
        features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
        return cls({key.api_key: (key.min_version, key.max_version) for key in response.api_keys}, features, supported)

    def choose(
        self, message: Request[Any] | type[Request[Any]], at_most: int | None = None, *, old: bool = False
    ) -> int:
        """The version to send ``message`` (an object or its class) with. Raises UnsupportedRequest.

        ``old`` admits versions from before Apache Kafka 4.
        """
        name = (message if isinstance(message, type) else type(message)).__name__
        theirs = self.ranges.get(message.API_KEY)
        if theirs is None:
            raise UnsupportedRequest(f"the broker does not have {name}; it is too old or configured without it")
        highest = min(theirs[1], message.MAX_VERSION if at_most is None else min(at_most, message.MAX_VERSION))
        ours = message.MIN_VERSION if old else max(message.MIN_VERSION, message.BASELINE_VERSION)
        lowest = max(theirs[0], ours)
        if highest < lowest:
            raise UnsupportedRequest(
                f"{name}: the broker has versions {theirs[0]} to {theirs[1]}, "
                f"this client {ours} to {message.MAX_VERSION if at_most is None else at_most}"
            )
        return highest

    def supports(self, message: Request[Any] | type[Request[Any]], version: int = 0) -> bool:
        """True if ``version`` of a request, or a higher one, can be used."""
        try:
            return self.choose(message) >= version
        except UnsupportedRequest:
            return False


OLD_BROKERS: Final[dict[str, Versions]] = {
    "0.8": Versions({0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (1, 1), 9: (1, 1), 10: (0, 0)}),
    "0.9": Versions(
        {0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0), 8: (1, 2), 9: (1, 1)} | dict.fromkeys(range(10, 17), (0, 0))
    ),
}
"""The versions of brokers that do not know ApiVersions, by release. OffsetCommit 0 and OffsetFetch 0 are left out: they
go to ZooKeeper."""


def downgraded(response: ApiVersionsResponse, tried: int) -> int:
    """The ApiVersions version to try after UNSUPPORTED_VERSION for ``tried``. Raises PeerError if there is none
    lower."""
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
        raise PeerError(f"ApiVersions was answered with error {response.error_code}")
    highest = max(
        (key.max_version for key in response.api_keys if key.api_key == ApiVersionsRequest.API_KEY), default=0
    )
    if tried == 0:
        raise PeerError("the broker refuses ApiVersions version 0")
    return max(0, min(highest, tried - 1))
