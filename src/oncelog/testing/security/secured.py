"""Methods shared by secured brokers and clusters; ``security`` implements them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.testing.security.security import SecuredHost, Security


class Secured:
    _security: Security | None = None

    @property
    def security(self) -> Security:
        """Certificates, users and tokens. Raises RuntimeError without ``security=``."""
        if self._security is None:
            raise RuntimeError(f"no security is configured: create it with {type(self).__name__}(security='scram')")
        return self._security

    def add_user(self, name: str, password: str | None = None) -> None:
        """See :meth:`oncelog.testing.security.security.Security.add_user`."""
        self.security.add_user(name, password)

    def allow(self, user: str, *operations: str, **where: Any) -> None:
        """See :meth:`oncelog.testing.security.security.Security.allow`."""
        self.security.allow(user, *operations, **where)

    def deny(self, user: str, *operations: str, **where: Any) -> None:
        """See :meth:`oncelog.testing.security.security.Security.deny`."""
        self.security.deny(user, *operations, **where)

    def client_config(self, user: str | None = None, *, java: bool = False) -> dict[str, Any]:
        """See :meth:`oncelog.testing.security.security.Security.client_config`."""
        return self.security.client_config(user, java=java)


def make_security(name: str, host: SecuredHost, now_s: Callable[[], float]) -> Security:
    """The security of this name; ``now_s`` is the brokers' clock. Raises ValueError, and ImportError for a missing
    package.
    """
    try:
        from oncelog.testing.security.kinds import Kind
        from oncelog.testing.security.security import Security
    except ModuleNotFoundError as missing:
        raise ImportError(f"security={name!r} needs {missing.name}: pip install 'oncelog[security]'") from None
    return Security(Kind.of(name), host, now_s)
