"""AlterConfigs, versions 0 to 2 (KIP-133): replaces all that a resource sets itself."""

from __future__ import annotations

from typing import Final

from oncelog.core.controller.entities.config_changes import Alteration, ConfigChange
from oncelog.core.controller.resources import Resource
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.configs.alteration import ALTERATION_ERRORS, alter, responses
from oncelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

ERRORS: Final = ALTERATION_ERRORS


def handle(request: AlterConfigsRequest, context: Context) -> Steps[AlterConfigsResponse]:
    """Keys that are not named go back to their defaults."""
    alterations = [
        Alteration(
            Resource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    outcomes = yield from alter(alterations, context, dry_run=request.validate_only)
    return AlterConfigsResponse(responses=responses(alterations, outcomes, AlterConfigsResourceResponse))
