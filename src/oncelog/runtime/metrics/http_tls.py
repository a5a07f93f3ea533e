"""The TLS context of a broker's HTTP port."""

from __future__ import annotations

import ssl

from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import BrokerConfig


def http_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context of the HTTP port; None without TLS. Raises StartRefused."""
    location = config.get("oncelog.http.ssl.keystore.location")
    if location is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would prompt for it on the terminal, hence the empty one.
        context.load_cert_chain(location, password=config.get("oncelog.http.ssl.key.password") or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise StartRefused(f"oncelog.http.ssl.keystore.location {location}: {reason}") from None
    return context
