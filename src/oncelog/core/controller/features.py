"""Feature levels (KIP-584): what this version supports, what a cluster begins with, and how levels change.

Only what the broker truly does is supported. ``metadata.version`` is there because Apache Kafka's tools take it as the
cluster's release; nothing here depends on it. A feature at level 0 is not finalized. Clients use what is finalized
only while the epoch, the version of the node that holds the levels, does not fall.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class FeatureRange(NamedTuple):
    """The levels of a feature that this version supports."""

    low: int
    high: int


METADATA_VERSION: Final = "metadata.version"

SUPPORTED_FEATURES: Final = {METADATA_VERSION: FeatureRange(7, 30)}
"""``group.version`` and ``transaction.version`` join with the protocols they stand for."""

INITIAL_FEATURES: Final = {METADATA_VERSION: 30}
