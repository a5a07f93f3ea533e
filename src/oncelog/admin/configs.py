"""Describes and changes the configuration of topics, brokers and groups (KIP-133, KIP-339).

Requests about a broker's configuration go to that broker, all others to any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from oncelog.client.programs import Broker, Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SOURCES: Final = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    6: "dynamic broker logger",
    7: "client metrics",
    8: "group",
}
_DEFAULT_SOURCE: Final = 5
_SET: Final = 0
_DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One key. ``value`` is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    is_sensitive: bool
    documentation: str | None = None


@operation
def describe_configs(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    keys: Iterable[str] | None = None,
    *,
    documentation: bool = False,
) -> Program[list[ConfigRow]]:
    """The keys of a resource, or those in ``keys``, by name. Raises BrokerRefused."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    message = DescribeConfigsRequest(resources=[resource], include_documentation=documentation)

    def attempt() -> Program[list[ConfigRow]]:
        response = yield from cluster.request(message, broker=_broker(kind, name))
        result = response.results[0]
        raise_for_error(result, f"{kind.name.lower()} {name!r}")
        return sorted(map(_row, result.configs), key=lambda row: row.name)

    return (yield from cluster.retrying(attempt))


def _row(config: DescribeConfigsResourceResult) -> ConfigRow:
    return ConfigRow(
        config.name,
        config.value,
        SOURCES.get(config.config_source, "unknown"),
        config.config_source == _DEFAULT_SOURCE,
        config.read_only,
        config.is_sensitive,
        config.documentation or None,
    )


@operation
def configs_by_name(
    cluster: Cluster, kind: ResourceType, names: Iterable[str]
) -> Program[dict[str, dict[str, ConfigRow]]]:
    """All keys by resource name, in one request, without resources that do not exist or may not be read."""
    response = yield from _describe(cluster, kind, names, None)
    return {
        result.resource_name: {config.name: _row(config) for config in result.configs}
        for result in response.results
        if not result.error_code
    }


@operation
def values_of(cluster: Cluster, kind: ResourceType, names: Iterable[str], key: str) -> Program[dict[str, str | None]]:
    """The value of one key by resource name, in one request, without resources that do not exist or may not be read."""
    by_name = yield from values_by_name(cluster, kind, names, [key])
    return {name: values[key] for name, values in by_name.items() if key in values}


@operation
def values_by_name(
    cluster: Cluster, kind: ResourceType, names: Iterable[str], keys: Iterable[str]
) -> Program[dict[str, dict[str, str | None]]]:
    """The values of several keys, as ``values_of``."""
    requested = list(keys)
    response = yield from _describe(cluster, kind, names, requested)
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.name in requested}
        for result in response.results
        if not result.error_code
    }


def _describe(
    cluster: Cluster, kind: ResourceType, names: Iterable[str], keys: list[str] | None
) -> Program[DescribeConfigsResponse]:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
    ]
    message = DescribeConfigsRequest(resources=resources)
    return (yield from cluster.retrying(lambda: cluster.request(message)))


@operation
def alter_configs(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    *,
    change: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    validate_only: bool = False,
) -> Program[None]:
    """Set the keys in ``change``, reset those in ``delete`` to their defaults, keep the others. Raises
    BrokerRefused."""
    configs = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in (change or {}).items()]
    configs += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    message = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

    def attempt() -> Program[None]:
        broker = _broker(kind, name)
        # The controller writes dynamic configuration; other brokers would forward the request.
        response = yield from cluster.request(message, broker="controller" if broker == "any" else broker)
        for result in response.responses:
            raise_for_error(result, f"{kind.name.lower()} {name!r}")

    yield from cluster.retrying(attempt)


def _broker(kind: ResourceType, name: str) -> Broker:
    # Only the broker itself knows its static configuration and its loggers.
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name.isdigit():
        return int(name)
    return "any"
