"""UnregisterBroker, version 0 (KIP-631): a broker that is down for good is not counted on any more.

Any broker decides: the lasting record of the one that is down is marked, if that has not registered since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.brokers.unregistration import unregister
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no such broker",
    ErrorCode.INVALID_REQUEST: "the broker is running",
    ErrorCode.REQUEST_TIMED_OUT: "other changes kept coming in between",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}


def handle(request: UnregisterBrokerRequest, context: Context) -> Steps[UnregisterBrokerResponse]:
    """Unregister the broker."""
    if not context.allows_cluster(Operation.ALTER):
        return _refused(CLUSTER_DENIED)
    (outcome,) = yield from committed(lambda: unregister(context.cluster.image, request.broker_id))
    return _refused(outcome) if isinstance(outcome, Refusal) else UnregisterBrokerResponse()


def _refused(refusal: Refusal) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=refusal.error_code, error_message=refusal.message)
