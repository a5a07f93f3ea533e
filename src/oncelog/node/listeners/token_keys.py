"""The keys of OAUTHBEARER listeners, for the outside, which reads them and verifies signatures by them."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.core.sasl.exchange import InvalidToken as InvalidToken
from oncelog.core.sasl.settings import KeySetSettings as KeySetSettings
from oncelog.core.sasl.settings import listener_sasl
from oncelog.core.sasl.tokens import ALGORITHMS as ALGORITHMS
from oncelog.core.sasl.tokens import VerifySignature as VerifySignature
from oncelog.node.listeners.broker_settings import Settings


def key_set_places(settings: Settings) -> Mapping[str, KeySetSettings]:
    """The place of the key set of each listener that takes tokens, by its name. Raises ConfigError."""
    names = [each.listener_name for each in settings.listeners.endpoints if each.protocol.has_sasl]
    found = [listener_sasl(settings.config, name) for name in names]
    return {each.listener_name: each.key_set for each in found if each.key_set is not None}
