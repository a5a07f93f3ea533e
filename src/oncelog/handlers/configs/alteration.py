"""Changes of configs.

AlterConfigs, versions 0 to 2 (KIP-133), replaces all configs that a resource sets itself. IncrementalAlterConfigs,
versions 0 to 1 (KIP-339), sets, removes, appends to and subtracts from single keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.controller.entities.config_changes import (
    Alteration,
    ChangeType,
    ConfigChange,
    alter_configs,
    alteration_bytes,
    repeated_resources,
)
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.resources import ConfigResourceType, Resource
from oncelog.core.controller.topics.commit_split import batches
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, Answer, committed_in_batches, with_outcome
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages import incremental_alter_configs as incremental
from oncelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

_A = TypeVar("_A", bound=Answer)
_JAAS: Final = "sasl.jaas.config"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_TOPIC_DENIED: Final = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
_GROUP_DENIED: Final = Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
_RESOURCES_PER_COMMIT: Final = 1000
"""The most resources in one commit; fewer if they are large."""
ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name",
    ErrorCode.INVALID_CONFIG: "a config is unknown or has a wrong value, or the change is not one for its type",
    ErrorCode.INVALID_REQUEST: "a resource or key twice, a null value, an unknown resource type, another broker's id, "
    "or a broker config that cannot change while it runs or has a wrong value",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an unknown kind of change, except of a broker's configs (incremental)",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to alter the topic's configs",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to alter the group's configs",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster's configs",
}
ALTER_INCREMENTALLY_ERRORS: Final = ALTER_ERRORS


def _changed(alterations: Sequence[Alteration], context: Context, *, dry_run: bool) -> Steps[Sequence[Refusal | None]]:
    """Apply alterations, many in one commit. Returns the outcome of each."""
    denied = {
        alteration.resource: denial(context, Operation.ALTER_CONFIGS, *alteration.resource)
        or _unusable_login(alteration)
        for alteration in alterations
    }
    allowed = [alteration for alteration in alterations if denied[alteration.resource] is None]
    cluster = context.cluster
    # A resource named twice is refused in all its places, whichever batch it falls into.
    repeated = repeated_resources(allowed)

    def decide(batch: Sequence[Alteration]) -> Decided[None]:
        return alter_configs(cluster.image, cluster.config, cluster.broker_id, batch, repeated)

    alteration_batches = batches(allowed, partial(alteration_bytes, cluster.image), _RESOURCES_PER_COMMIT)
    outcomes = yield from committed_in_batches(alteration_batches, decide, dry_run=dry_run)
    decided = iter(outcomes)
    return [
        next(decided) if denied[alteration.resource] is None else denied[alteration.resource]
        for alteration in alterations
    ]


def _responses(
    alterations: Sequence[Alteration], outcomes: Sequence[Refusal | None], response: Callable[..., _A]
) -> list[_A]:
    return [
        with_outcome(response(resource_type=alteration.resource.type, resource_name=alteration.resource.name), outcome)
        for alteration, outcome in zip(alterations, outcomes, strict=True)
    ]


def _unusable_login(alteration: Alteration) -> Refusal | None:
    """The refusal of a JAAS line or mechanism with which no client could log in, now or after the next start."""
    if alteration.resource.type != ConfigResourceType.BROKER:
        return None
    for change in alteration.changes:
        if change.value is None or change.type not in (ChangeType.SET, ChangeType.APPEND):
            continue
        if change.key.endswith((f".{_JAAS}", _MECHANISMS)):
            from oncelog.core.sasl.settings import check_line, check_mechanisms  # most brokers need nothing of it

            try:
                (check_mechanisms if change.key.endswith(_MECHANISMS) else check_line)(change.key, change.value)
            except ConfigError as error:
                return Refusal(ErrorCode.INVALID_REQUEST, str(error))
    return None


def denial(context: Context, operation: Operation, resource_type: int, name: str) -> Refusal | None:
    if resource_type == ConfigResourceType.TOPIC:
        return None if context.allows_topic(operation, name) else _TOPIC_DENIED
    if resource_type == ConfigResourceType.GROUP:
        return None if context.allows_group(operation, name) else _GROUP_DENIED
    return None if context.allows_cluster(operation) else CLUSTER_DENIED


def alter(request: AlterConfigsRequest, context: Context) -> Steps[AlterConfigsResponse]:
    """Keys that are not named return to their defaults."""
    alterations = [
        Alteration(
            Resource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    outcomes = yield from _changed(alterations, context, dry_run=request.validate_only)
    return AlterConfigsResponse(responses=_responses(alterations, outcomes, AlterConfigsResourceResponse))


def alter_incrementally(
    request: incremental.IncrementalAlterConfigsRequest, context: Context
) -> Steps[incremental.IncrementalAlterConfigsResponse]:
    """Keys that are not named stay."""
    alterations = [
        Alteration(
            Resource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = yield from _changed(alterations, context, dry_run=request.validate_only)
    answers = _responses(alterations, outcomes, incremental.AlterConfigsResourceResponse)
    for answer, outcome in zip(answers, outcomes, strict=True):
        if outcome is CLUSTER_DENIED and answer.resource_type == ConfigResourceType.BROKER:
            answer.error_message = None  # as in Apache Kafka since 4.4
    return incremental.IncrementalAlterConfigsResponse(responses=answers)
