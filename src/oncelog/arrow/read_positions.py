"""A reader's positions, to go on later: offsets by partition, and the ids of their topics.

As JSON it is what Spark's checkpoints of the ``oncelog`` source have (topic → partition → next offset, ``@topicIds``
beside the topics), so one can be taken for the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Self

from oncelog.client.errors import ConfigError

_NOTE_MARK: Final = "@"
_TOPIC_IDS: Final = "@topicIds"


class Positions(dict[tuple[str, int], int]):
    """(topic, partition) → the next offset. With ``topic_ids`` (KIP-516; as text) a topic is known from another one of
    its name; a plain dict with the same offsets, or one that was made of it, does not have them."""

    def __init__(self, offsets: Mapping[tuple[str, int], int], topic_ids: Mapping[str, str]) -> None:
        super().__init__(offsets)
        self.topic_ids = dict(topic_ids)

    def to_json(self) -> str:
        """The positions as one line of JSON; equal positions give equal text."""
        nested: dict[str, dict[str, int | str]] = {}
        for (topic, number), offset in sorted(self.items()):
            nested.setdefault(topic, {})[str(number)] = offset
        if self.topic_ids:
            nested[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return json.dumps(nested)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The positions in the text of :meth:`to_json`. Raises ConfigError."""
        try:
            nested = json.loads(text)
            offsets = {
                (topic, int(number)): int(offset)
                for topic, partitions in nested.items()
                if not topic.startswith(_NOTE_MARK)
                for number, offset in partitions.items()
            }
            return cls(offsets, nested.get(_TOPIC_IDS, {}))
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(f'positions must be JSON like {{"topic": {{"0": 5}}}}, not {text[:200]}') from None
