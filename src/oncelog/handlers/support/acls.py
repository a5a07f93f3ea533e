"""Shared by the three APIs about access control lists. Not an API.

There is no authorizer that keeps lists, and every question about them is answered as Apache Kafka answers it without
one: SECURITY_DISABLED, for each item of the request. Clients ask when they begin (MirrorMaker 2, user interfaces) and
take that answer for what it is; an API that is not there is an error to them.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.metadata_changes import CLUSTER_DENIED, may_cluster

DISABLED: Final = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""The answer to changes."""

_UNKNOWN: Final = 0
"""Apache Kafka's code for what a client did not know: a type, a pattern, an operation, a permission."""


def change_refusal(context: Context) -> Refusal:
    """The reason for which no list is changed."""
    return DISABLED if may_cluster(context, Operation.ALTER) else CLUSTER_DENIED


def require_known(*codes: int) -> None:
    """Raise PeerError, which closes the connection as Apache Kafka does, where a code stands for what is not known."""
    if _UNKNOWN in codes:
        raise PeerError("an access control list of an unknown type, pattern, operation or permission")
