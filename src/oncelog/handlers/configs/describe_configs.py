"""DescribeConfigs, versions 1 to 4 (KIP-133, KIP-226, KIP-569): values, their sources, and their documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.configs import kafka_documentation
from oncelog.core.configs.broker import BrokerConfig, Source, Synonym
from oncelog.core.configs.keys import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    broker_key,
    documentation_of,
)
from oncelog.core.configs.kinds import ConfigKey, Update, Value, canonical
from oncelog.core.configs.topic import topic_synonyms, topic_value
from oncelog.core.controller.outcomes import Refusal, Refused
from oncelog.core.controller.resources import ConfigResourceType, Resource, check_broker_name, current
from oncelog.core.controller.topic_names import name_refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import with_outcome
from oncelog.handlers.configs.alteration import denial
from oncelog.wire.messages import describe_configs as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name",
    ErrorCode.INVALID_REQUEST: "another broker's id, an empty name, or an unknown resource type",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to see the topic's configs",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to see the group's configs",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to see the cluster's configs",
}

Entry = wire.DescribeConfigsResourceResult

_TEXTS: Final = {Source.GROUP: kafka_documentation.GROUP, Source.CLIENT_METRICS: kafka_documentation.CLIENT_METRICS}


def handle(request: wire.DescribeConfigsRequest, context: Context) -> wire.DescribeConfigsResponse:
    # A broker's configuration with its documentation is 100 kB, and six bytes ask for it.
    resources = list({_question(resource): resource for resource in request.resources}.values())
    unknown = [resource for resource in resources if resource.resource_type not in tuple(ConfigResourceType)]
    # An unknown type refuses the whole request, as in Apache Kafka.
    if unknown:
        message = f"Unexpected resource type {unknown[0].resource_type} for resource {unknown[0].resource_name}"
        refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
        return wire.DescribeConfigsResponse(results=[_refuse(resource, refusal) for resource in resources])
    describe = _Describer(request, context)
    denials = [
        denial(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        for resource in resources
    ]
    judged = list(zip(resources, denials, strict=True))
    results = [describe.result(resource) for resource, denied in judged if denied is None]
    results += [_refuse(resource, denied) for resource, denied in judged if denied is not None]
    return wire.DescribeConfigsResponse(results=results)


def _question(resource: wire.DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    keys, name = resource.configuration_keys, resource.resource_name
    if resource.resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        digits = name.removeprefix("+")
        if digits.isascii() and digits.isdigit():  # 1, +1 and 001 are the same broker
            name = digits.lstrip("0") or "0"
    return resource.resource_type, name, tuple(keys or ())


def _refuse(resource: wire.DescribeConfigsResource, refusal: Refusal) -> wire.DescribeConfigsResult:
    result = wire.DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    return with_outcome(result, refusal)


class _Describer:
    """Describes resources for one request; topics with equal overrides share their entries."""

    def __init__(self, request: wire.DescribeConfigsRequest, context: Context) -> None:
        self._context = context
        self._config: BrokerConfig = context.cluster.config
        self._with_synonyms = request.include_synonyms
        self._with_documentation = request.include_documentation
        self._topic_entries: dict[frozenset[tuple[str, str]], list[Entry]] = {}

    def result(self, resource: wire.DescribeConfigsResource) -> wire.DescribeConfigsResult:
        describe: Mapping[int, Callable[[str], Sequence[Entry]]] = {
            ConfigResourceType.TOPIC: self._topic,
            ConfigResourceType.BROKER: self._broker,
            ConfigResourceType.BROKER_LOGGER: self._loggers,
            ConfigResourceType.CLIENT_METRICS: self._client_metrics,
            ConfigResourceType.GROUP: self._group,
        }
        try:
            entries = describe[resource.resource_type](resource.resource_name)
        except Refused as refused:
            return _refuse(resource, refused.refusal)
        keys = set(resource.configuration_keys or ())
        return wire.DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[entry for entry in entries if not keys or entry.name in keys],
        )

    def _topic(self, name: str) -> Sequence[Entry]:
        refusal = name_refusal(name)
        if refusal is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
        topic = self._context.cluster.image.topics.get(TopicName(name))
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        overrides = frozenset(topic.configs.items())
        entries = self._topic_entries.get(overrides)
        if entries is None:
            entries = self._topic_entries[overrides] = [
                self._entry(
                    key,
                    topic_value(self._config, topic.configs, key),
                    topic_synonyms(self._config, topic.configs, key),
                    kafka_documentation.TOPIC,
                )
                for key in TOPIC_KEYS.values()
                if not key.internal or key.name in topic.configs
            ]
        return entries

    def _broker(self, name: str) -> Sequence[Entry]:
        config = self._config
        if not name:
            return [
                self._set_entry(key, [s for s in config.synonyms(key) if s.source is Source.DYNAMIC_DEFAULT_BROKER])
                for key in config.dynamic_default
            ]
        check_broker_name(
            name,
            self._context.cluster.broker_id,
            "Broker id must be an integer, but it is: ",
            " or empty string, but received ",
        )
        listed = {key.name: key for key in BROKER_KEYS.values() if not key.internal}
        others = dict.fromkeys((*config.static, *config.dynamic_default, *config.dynamic))
        return [
            *(
                self._entry(
                    key,
                    config.get(name),
                    config.synonyms(name),
                    kafka_documentation.BROKER,
                    read_only=key.update is Update.READ_ONLY,
                )
                for name, key in listed.items()
            ),
            *(self._set_entry(name, config.synonyms(name)) for name in others if name not in listed),
        ]

    def _set_entry(self, name: str, synonyms: list[Synonym]) -> Entry:
        """A key as it was set, unparsed. The value of an unknown or hidden key is withheld: it may be secret."""
        key = broker_key(name)
        if key is not None and key.hidden:
            key = None
        return Entry(
            name=name,
            value=synonyms[0].value,
            read_only=key is None or key.update is Update.READ_ONLY or key.name != name,  # so says Apache Kafka
            config_source=synonyms[0].source.value,
            is_sensitive=key is None or key.sensitive,
            synonyms=self._shown(synonyms),
            config_type=0 if key is None else key.type.value,
            documentation=None if key is None else self._documentation(key, kafka_documentation.BROKER),
        )

    def _loggers(self, name: str) -> Sequence[Entry]:
        """Always empty: the protocol cannot change log levels here."""
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        broker_id = self._context.cluster.broker_id
        check_broker_name(name, broker_id, "Broker id must be an integer, but it is: ", " but received ")
        return []

    def _client_metrics(self, name: str) -> Sequence[Entry]:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        configs = current(self._context.cluster.image, Resource(ConfigResourceType.CLIENT_METRICS, name)).configs
        return [self._own_entry(key, configs, Source.CLIENT_METRICS, []) for key in CLIENT_METRICS_KEYS.values()]

    def _group(self, name: str) -> Sequence[Entry]:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        configs = current(self._context.cluster.image, Resource(ConfigResourceType.GROUP, name)).configs
        return [
            self._own_entry(key, configs, Source.GROUP, self._defaults(key))
            for key in GROUP_KEYS.values()
            if not key.internal or key.name in configs
        ]

    def _defaults(self, key: ConfigKey) -> list[Synonym]:
        if key.synonym is not None:
            return self._config.synonyms(key.synonym)
        return [Synonym(key.name, key.default, Source.DEFAULT)]

    def _own_entry(self, key: ConfigKey, configs: Mapping[str, str], source: Source, synonyms: list[Synonym]) -> Entry:
        value = self._config.get(key.synonym) if key.synonym else key.default_value()
        if key.name in configs:
            value = key.parse(configs[key.name])
            synonyms = [Synonym(key.name, canonical(value), source), *synonyms]
        return self._entry(key, value, synonyms, _TEXTS[source])

    def _entry(
        self,
        key: ConfigKey,
        value: Value,
        synonyms: Sequence[Synonym],
        texts: Mapping[str, str],
        *,
        read_only: bool = False,
    ) -> Entry:
        source = synonyms[0].source if synonyms else Source.DEFAULT
        return Entry(
            name=key.name,
            value=None if key.sensitive else canonical(value),
            read_only=read_only,
            config_source=source.value,
            is_sensitive=key.sensitive,
            synonyms=self._shown(synonyms),
            config_type=key.type.value,
            documentation=self._documentation(key, texts),
        )

    def _documentation(self, key: ConfigKey, texts: Mapping[str, str]) -> str | None:
        return documentation_of(key, texts) if self._with_documentation else None

    def _shown(self, synonyms: Sequence[Synonym]) -> list[wire.DescribeConfigsSynonym]:
        return [
            wire.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source.value)
            for synonym in (synonyms if self._with_synonyms else ())
        ]
