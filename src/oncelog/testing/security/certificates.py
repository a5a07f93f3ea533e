"""The certificates of in-process brokers and their clients, in a directory that is removed with the brokers."""

from __future__ import annotations

import datetime
from pathlib import Path

from oncelog.security.authority import LIFETIME, Authority, Identity
from oncelog.security.properties import BROKER_NAME
from oncelog.security.setup import LOOPBACK, replace, write_new


class Certificates:
    """A private authority, and the files it has signed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # The client listener has its own certificate, so that it can expire while brokers still reach each other.
        self._authority = Authority.create("oncelog test authority")
        self.ca = directory / "ca.pem"
        write_new(self.ca, self._authority.pem, 0o600)
        self.renew()
        replace(self.brokers, self._broker().pem)

    @property
    def clients(self) -> Path:
        return self.directory / "clients.pem"

    @property
    def brokers(self) -> Path:
        # Key and certificate of the broker listener; its principal is a super user.
        return self.directory / "brokers.pem"

    def renew(self) -> None:
        replace(self.clients, self._broker().pem)

    def expire(self) -> None:
        """Make a certificate for the client listener that expired a day ago."""
        day = datetime.timedelta(days=1)
        replace(self.clients, self._broker(datetime.datetime.now(datetime.UTC) - 2 * day, day).pem)

    def client(self, user: str) -> Path:
        """Make a new key and certificate of a user. Returns the file."""
        path = self.directory / "users" / f"{user}.pem"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace(path, self._authority.client(user).pem)
        return path

    def _broker(self, begins: datetime.datetime | None = None, lifetime: datetime.timedelta = LIFETIME) -> Identity:
        return self._authority.broker(LOOPBACK, BROKER_NAME, lifetime=lifetime, begins=begins)
