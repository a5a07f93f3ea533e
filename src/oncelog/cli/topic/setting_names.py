"""Names of topics' settings that were mistyped: found, and answered with the name that was meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

_ALIKE: Final = 0.8


def require_settings(client: Client, topic: str, names: Sequence[str]) -> None:
    """Raise ClientError for a name that is no setting of topics: brokers accept its deletion, and nothing happens."""
    from oncelog.admin.configs import ResourceType, describe_configs
    from oncelog.base.suggestions import did_you_mean
    from oncelog.client.errors import ClientError

    known = [row.name for row in describe_configs(client, ResourceType.TOPIC, topic)] if names else []
    for name in names:
        if name not in known:
            raise ClientError(f"topic {topic!r}: no setting is called {name!r}{did_you_mean(name, known, _ALIKE)}")


@contextlib.contextmanager
def names_suggested(names: Iterable[str]) -> Iterator[None]:
    """Context in which BrokerRefused, if it refuses one of these settings by name, adds the name that was meant."""
    from oncelog.base.errors import ErrorCode
    from oncelog.client.errors import BrokerRefused

    try:
        yield
    except BrokerRefused as refused:
        if refused.code != ErrorCode.INVALID_CONFIG or refused.detail is None:
            raise
        from oncelog.base.suggestions import did_you_mean
        from oncelog.core.configs.keys import TOPIC_KEYS as KNOWN

        mistyped = (name for name in names if name not in KNOWN and refused.detail.endswith(name))
        hint = next((did_you_mean(name, KNOWN, _ALIKE) for name in mistyped), "")
        if not hint:
            raise
        raise BrokerRefused(refused.code, refused.what, refused.detail + hint) from None
