"""A connection to ZooKeeper through kazoo, and nothing of the coordination tree. Beside this module only
``connection``, which makes kazoo's client, imports kazoo.

The rule: every call comes back. Without a connection it fails at once; one that is not answered within the session's
time-out has failed as if the connection had been lost. kazoo begins a new session by itself when one has expired;
``lost`` says that this has happened, and then nothing is asked any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from oncelog.base.tree import OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.coordination.zookeeper.access import ZooKeeperAccess
from oncelog.coordination.zookeeper.connection import acl_of, failure_of, make_client
from oncelog.ports import Check, Create, Delete, Operation, Set

_PIPELINED: Final = 500
"""Reads that are on the way at a time."""
_NO_ANSWER: Final = (exceptions.ConnectionLoss, exceptions.ConnectionClosedError, KazooTimeoutError)
_FORBIDDEN: Final = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)

Watch = Callable[[object], None]
"""Called with an event of kazoo's, from its own thread, once; also when the connection is lost. To wait for one thing
again and again, give the same function each time: others pile up until it happens."""


class Stat(NamedTuple):
    """The metadata of a node."""

    version: int
    owner: int
    """The session of an ephemeral node; 0: none."""
    children: int


@dataclass(frozen=True, slots=True)
class CreateNext:
    """Create a node whose name is ``prefix`` and the number of nodes that were ever created beside it."""

    prefix: str
    value: bytes


class Reason(Enum):
    """The reasons for which ZooKeeper refuses an operation."""

    VERSION = "it stands at another version"
    EXISTS = "it exists"
    ABSENT = "it does not exist"
    OTHER = "it has children, or its parent is ephemeral"


class Refused(Exception):
    """A transaction was refused, and changed nothing, because of the operation at ``index``."""

    def __init__(self, index: int, reason: Reason) -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"operation {index}: {reason.value}")


@dataclass(frozen=True, slots=True)
class Address:
    """``zookeeper.connect``: servers, and the path below which everything lies."""

    hosts: str
    chroot: str
    """Empty, or a path without a slash at its end."""

    @classmethod
    def parse(cls, connect: str) -> Address:
        """``host:port,host:port/path``, the path optional."""
        hosts, slash, path = connect.partition("/")
        return cls(hosts, (slash + path).rstrip("/"))


class ZooKeeperClient:
    """One connection with one session. See the module."""

    def __init__(
        self,
        address: Address,
        access: ZooKeeperAccess,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        changed: Callable[[], None],
    ) -> None:
        """Connect. ``changed`` is called, from any thread, when the connection has come back or the session has ended.
        Raises TreeUnavailable."""
        self.lost = False
        """True once the session has ended."""
        self._hosts, self._chroot = address.hosts, address.chroot
        self._access = access
        self._timeout_s = session_timeout_ms / 1000
        self._changed = changed
        self._login_refused = False
        self._client = _make_client(address, access, self._timeout_s)
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(connection_timeout_ms / 1000)
            # Connected is said before the login is done; this is answered after it.
            self._client.exists_async("/").get(timeout=self._timeout_s)
        except (KazooTimeoutError, exceptions.KazooException) as error:
            reason = self._why_not(error, connection_timeout_ms)
            self.stop()
            raise TreeUnavailable(reason) from None
        self.session_id: int = self._client.client_id[0]

    def _why_not(self, error: Exception, waited_ms: int) -> str:
        """The reason for which there is no session, for an operator."""
        servers = f"ZooKeeper at {self._hosts}"
        if self._login_refused:
            return f"{servers} refuses the user or the password of oncelog.zookeeper.sasl.jaas.config"
        reason = failure_of(self._client) or str(error) or type(error).__name__
        return f"cannot reach {servers} within {waited_ms / 1000:g} s: {reason}"

    @property
    def connected(self) -> bool:
        """True while requests are answered, as far as is known."""
        return bool(self._client.connected)

    def stop(self) -> None:
        """End the session, if ZooKeeper can be reached, and the connection."""
        self._client.remove_listener(self._state_changed)
        with suppress(Exception):  # whatever is wrong with the connection, it ends
            self._client.stop()
        with suppress(Exception):
            self._client.close()

    def sync(self) -> None:
        """Read from now on what was committed before. Raises TreeUnavailable and SessionLost, as all reads do."""
        self._ask(self._client.sync_async, "/")

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """A node's value, or None; ``watch`` is called once when a node that is there is changed or deleted."""
        found = self._ask(self._client.get_async, path, watch)
        return None if found is None else (found[0], _stat(found[1]))

    def get_all(self, paths: Iterable[str]) -> Iterator[tuple[str, tuple[bytes, Stat] | None]]:
        """Values of nodes, read side by side."""
        for path, answer in self._side_by_side(paths, self._client.get_async):
            yield path, None if answer is None else (answer[0], _stat(answer[1]))

    def children_of(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """The names of nodes' children, in no order, read side by side."""
        for path, names in self._side_by_side(paths, self._client.get_children_async):
            yield path, names or []

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of a node's children, in no order; ``watch`` is called once when they change."""
        return self._ask(self._client.get_children_async, path, watch) or []

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The metadata of a node, or None; ``watch`` is called once when it is created, changed or deleted."""
        stat = self._ask(self._client.exists_async, path, watch)
        return None if stat is None else _stat(stat)

    def ensure(self, paths: Sequence[str]) -> None:
        """Create lasting nodes that do not exist, parents first, with what the chroot needs above them."""
        self._require_connection()
        parts = self._chroot.split("/")
        above = ["/".join(parts[: length + 1]) for length in range(1, len(parts))]
        for path in (*above, *map(self._real, paths)):
            if self._answered(self._client.exists_async(path)) is None:
                acl = acl_of(self._access, path.removeprefix(self._chroot))
                with suppress(exceptions.NodeExistsError):  # another broker was faster
                    self._answered(self._client.create_async(path, b"", acl))

    def give_acls(self, paths: Sequence[str]) -> int:
        """Give nodes the ACLs that they would be created with now; the number of those that are there."""
        paths_by_real = {self._real(path): path for path in paths}
        asked = self._side_by_side(
            paths, lambda real: self._client.set_acls_async(real, acl_of(self._access, paths_by_real[real]))
        )
        return sum(answer is not None for _, answer in asked)

    def transact(self, operations: Sequence[Operation | CreateNext]) -> str:
        """Carry out all operations or none; the last path, if it was created. Raises Refused, TreeUnavailable,
        OutcomeUnknown, SessionLost."""
        self._require_connection()
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        try:
            results = transaction.commit_async().get(timeout=self._timeout_s)
        except exceptions.SessionExpiredError as error:
            raise SessionLost("ZooKeeper has ended the session") from error
        except _NO_ANSWER as error:
            raise OutcomeUnknown(f"the connection to ZooKeeper was lost in a commit: {error!r}") from error
        for index, result in enumerate(results):
            if isinstance(result, _FORBIDDEN):
                raise TreeUnavailable(_forbidden(result))
            if isinstance(result, Exception) and not isinstance(result, exceptions.RolledBackError):
                raise Refused(index, _reason(result))
        return results[-1] if isinstance(results[-1], str) else ""

    def _add(self, transaction: Any, operation: Operation | CreateNext) -> None:
        match operation:
            case Create(path, value, ephemeral):
                transaction.create(self._real(path), bytes(value), acl_of(self._access, path), ephemeral=ephemeral)
            case CreateNext(prefix, value):
                transaction.create(self._real(prefix), value, acl_of(self._access, prefix), sequence=True)
            case Set(path, value, version):
                transaction.set_data(self._real(path), bytes(value), version)
            case Delete(path, version):
                transaction.delete(self._real(path), version)
            case Check(path, version):
                transaction.check(self._real(path), version)

    def _real(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _side_by_side(self, paths: Iterable[str], ask: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        left = iter(paths)
        while part := list(islice(left, _PIPELINED)):
            self._require_connection()
            for path, asked in [(path, ask(self._real(path))) for path in part]:
                yield path, self._answered(asked)

    def _require_connection(self) -> None:
        """Raise SessionLost or TreeUnavailable where there is none. Called before kazoo is: it keeps what it cannot
        send, and after some hundred calls the next one would not come back."""
        if self.lost:
            raise SessionLost("ZooKeeper has ended the session")
        if not self.connected:
            raise TreeUnavailable("there is no connection to ZooKeeper")

    def _ask(self, ask: Callable[..., Any], path: str, *more: object) -> Any:
        """Ask kazoo about a node; the answer, None where there is no such node."""
        self._require_connection()
        return self._answered(ask(self._real(path), *more))

    def _answered(self, asked: Any) -> Any:
        """The answer to what was asked, None where there is no such node."""
        self._require_connection()
        try:
            return asked.get(timeout=self._timeout_s)
        except exceptions.NoNodeError:
            return None
        except exceptions.SessionExpiredError as error:
            raise SessionLost("ZooKeeper has ended the session") from error
        except _FORBIDDEN as error:
            raise TreeUnavailable(_forbidden(error)) from None
        except _NO_ANSWER as error:
            raise TreeUnavailable(f"ZooKeeper does not answer: {error!r}") from error

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's own thread, which nothing may hold up."""
        if state == KazooState.LOST:
            self._login_refused = self._client.client_state == KeeperState.AUTH_FAILED
            self.lost = True
        if state != KazooState.SUSPENDED:
            self._changed()


def _make_client(address: Address, access: ZooKeeperAccess, timeout_s: float) -> Any:
    try:
        return make_client(address.hosts, access, timeout_s)
    except ModuleNotFoundError as error:
        raise TreeUnavailable(
            f"a login at ZooKeeper needs {error.name}, which is not installed: pip install oncelog[cluster]"
        ) from None


def _forbidden(error: Exception) -> str:
    if isinstance(error, exceptions.InvalidACLError):
        return (
            "ZooKeeper knows nobody whom a node's ACL could name: zookeeper.set.acl=true needs a login, or a "
            "certificate that the server asks for"
        )
    if isinstance(error, exceptions.AuthFailedError):
        return "ZooKeeper refuses the login"
    return (
        "ZooKeeper does not let this broker read or change the tree: its nodes belong to others; use the certificate "
        "or the login that they were created with, or change their ACLs"
    )


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.numChildren)


def _reason(error: Exception) -> Reason:
    if isinstance(error, exceptions.BadVersionError):
        return Reason.VERSION
    if isinstance(error, exceptions.NodeExistsError):
        return Reason.EXISTS
    return Reason.ABSENT if isinstance(error, exceptions.NoNodeError) else Reason.OTHER
