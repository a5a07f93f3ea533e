"""Selects the limit for a client: the most specific one, in Apache Kafka's order (KIP-55; docs/quotas.md,
"Precedence").

Names without a limit of their own are cut to ``MAX_LENGTH``, because peers choose them and measures are kept by name. A
client with an empty or no id only has limits of its user.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.text import shortened

ANY: Final = ""
"""The default of its type. An empty user or client id cannot have a limit of its own."""


MAX_LENGTH: Final = 128
"""Maximum length of a name under a default limit; longer ones become a beginning and a digest."""


class Client(NamedTuple):
    """Clients that share a measure; an empty user or client id stands for all."""

    user: str
    client_id: str


Key = tuple[str | None, str | None]
"""User and client id of a limit; None: not of this type, ``ANY``: its default."""


class Limits:
    def __init__(self) -> None:
        self._limits: dict[Key, float] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def set(self, key: Key, limit: float | None) -> None:
        if limit is None:
            self._limits.pop(key, None)
        else:
            self._limits[key] = limit

    def shared_by(self, user: str, client_id: str | None) -> Client | None:
        """None if no limit applies."""
        limits, client_id = self._limits, client_id or ""
        if client_id and (user, client_id) in limits:
            return Client(user, client_id)
        if (user, ANY) in limits:
            # A limit for any client id is counted for each id by itself.
            return Client(user, shortened(client_id, MAX_LENGTH))
        if (user, None) in limits:
            return Client(user, "")
        if client_id and (ANY, client_id) in limits:
            return Client(shortened(user, MAX_LENGTH), client_id)
        if (ANY, ANY) in limits:
            return Client(shortened(user, MAX_LENGTH), shortened(client_id, MAX_LENGTH))
        if (ANY, None) in limits:
            return Client(shortened(user, MAX_LENGTH), "")
        if client_id and (None, client_id) in limits:
            return Client("", client_id)
        if client_id and (None, ANY) in limits:
            return Client("", shortened(client_id, MAX_LENGTH))
        return None

    def limit(self, client: Client) -> float | None:
        """None if the limit was removed."""
        user, client_id = client
        keys: tuple[Key, ...]
        if user and client_id:
            keys = (user, client_id), (user, ANY), (ANY, client_id), (ANY, ANY)
        elif user:
            keys = (user, None), (ANY, None)
        else:
            keys = (None, client_id), (None, ANY)
        limits = self._limits
        return next((limits[key] for key in keys if key in limits), None)

    def find(self, user: str, client_id: str | None) -> tuple[Client, float] | None:
        """The clients that share a limit with this one, and the limit."""
        client = self.shared_by(user, client_id)
        limit = None if client is None else self.limit(client)
        return None if client is None or limit is None else (client, limit)
