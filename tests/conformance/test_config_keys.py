"""The generated tables of configuration keys agree with Apache Kafka: its ``ConfigDef``, and its recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from codegen.config_keys import ROOM, generated

from oncelog.core.configs import kafka_documentation
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from tests.conformance.golden.corpus import DATA
from tests.conformance.golden.replay import decode_request, decode_response
from tests.peers.recorder import Direction, load

RECORDING: Final = DATA / "sweep.config-documentation.xz"


@pytest.mark.java
@pytest.mark.slow
def test_keys_and_their_documentation_are_those_of_apache_kafkas_jars() -> None:
    for name, text in generated().items():
        assert (ROOM / name).read_text("utf-8") == text, f"{name}: run python -m codegen.config_keys"


def test_documentation_is_what_apache_kafka_answered() -> None:
    described = set()
    for result in _results():
        kind = ConfigResourceType(result.resource_type)
        described.add(kind.name)
        texts = getattr(kafka_documentation, kind.name)
        for entry in result.configs:
            assert (entry.documentation or None) == texts.get(entry.name), entry.name
    assert described == {"TOPIC", "BROKER", "CLIENT_METRICS", "GROUP"}


def _results() -> Iterator[DescribeConfigsResult]:
    requests = {}
    for event in load(RECORDING):
        if event.direction is Direction.REQUEST:
            requests[event.frame[4:8]] = decode_request(event.frame)
        elif event.direction is Direction.RESPONSE:
            request = requests[event.frame[:4]]
            if request is not None and request.name == "DescribeConfigs":
                answer: DescribeConfigsResponse = decode_response(event.frame, request)
                yield from answer.results
