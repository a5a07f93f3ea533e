"""Responses with a chosen error, in the right shape, for every API and version.

The request's own handler runs with an authoriser that denies everything: it changes nothing, and puts an error wherever
its response has room for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.base.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.handlers.api import Operation, ResourceType
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.waits import Steps
    from oncelog.node.requests.lazy_apis import Handle


class DenyAll:
    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return False

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return False


def refuse(handle: Handle, request: Any, context: Context, error: ErrorCode) -> Steps[Any]:
    """The response of ``handle`` with ``error`` in it; None for a request without a response (acks=0 raises)."""
    authoriser, context.authoriser = context.authoriser, DenyAll()
    access_log, context.access_log = context.access_log, None
    try:
        response = yield from handle(request, context)
    finally:
        context.authoriser, context.access_log = authoriser, access_log
    if response is not None and not put_errors(response, error, only_errors=True) and hasattr(response, "error_code"):
        response.error_code = int(error)
    return response


def put_errors(message: Any, error: ErrorCode, *, only_errors: bool = False) -> int:
    """Put ``error`` into every error field of a message, or only into those already set. Returns their number."""
    count = 0
    for field in getattr(message, "__slots__", ()):
        value = getattr(message, field)
        if field.endswith("error_code") and (value or not only_errors):
            setattr(message, field, int(error))
            count += 1
        elif field == "error_message" and value is not None:
            message.error_message = error.name
        elif isinstance(value, list):
            count += sum(put_errors(entry, error, only_errors=only_errors) for entry in value)
    return count


def error_of(name: str | int) -> ErrorCode:
    """An error code by Kafka's name or number. Raises ValueError."""
    try:
        return ErrorCode[name] if isinstance(name, str) else ErrorCode(name)
    except (KeyError, ValueError):
        raise ValueError(f"Kafka has no error {name!r}") from None
