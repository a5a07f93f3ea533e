"""TLS of a broker's HTTP port."""

from __future__ import annotations

import ssl

from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import BrokerConfig


def http_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """TLS of the HTTP port; None where it has none. Raises StartRefused."""
    location = config.get("oncelog.http.ssl.keystore.location")
    if location is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password instead of none, or OpenSSL would ask for it on the terminal.
        context.load_cert_chain(location, password=config.get("oncelog.http.ssl.key.password") or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise StartRefused(f"oncelog.http.ssl.keystore.location {location}: {reason}") from None
    return context
