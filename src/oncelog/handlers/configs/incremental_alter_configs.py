"""IncrementalAlterConfigs, versions 0 to 1 (KIP-339): sets, removes, appends to and takes from single keys."""

from __future__ import annotations

from typing import Final

from oncelog.core.controller.entities.config_changes import Alteration, ConfigChange
from oncelog.core.controller.resources import Resource
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.configs.alteration import ALTERATION_ERRORS, alter, responses
from oncelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ERRORS: Final = ALTERATION_ERRORS


def handle(request: IncrementalAlterConfigsRequest, context: Context) -> Steps[IncrementalAlterConfigsResponse]:
    """Keys that are not named stay as they are."""
    alterations = [
        Alteration(
            Resource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = yield from alter(alterations, context, dry_run=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses(alterations, outcomes, AlterConfigsResourceResponse))
