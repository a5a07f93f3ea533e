"""Locations of the key sets of OAUTHBEARER listeners, which the runtime reads to verify tokens."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.core.sasl.exchange import InvalidToken as InvalidToken
from oncelog.core.sasl.settings import KeySetSettings as KeySetSettings
from oncelog.core.sasl.settings import listener_sasl
from oncelog.core.sasl.tokens import ALGORITHMS as ALGORITHMS
from oncelog.core.sasl.tokens import VerifySignature as VerifySignature
from oncelog.node.listeners.broker_settings import Settings


def key_set_places(settings: Settings) -> Mapping[str, KeySetSettings]:
    """Key set settings by listener, of those that accept tokens. Raises ConfigError."""
    names = [endpoint.listener_name for endpoint in settings.listeners.endpoints if endpoint.protocol.has_sasl]
    listeners = [listener_sasl(settings.config, name) for name in names]
    return {endpoint.listener_name: endpoint.key_set for endpoint in listeners if endpoint.key_set is not None}
