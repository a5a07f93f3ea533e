"""The listeners that a configuration gives, and Apache Kafka's sentences for those that do not go together."""

from __future__ import annotations

import pytest

from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import Listeners
from oncelog.node.listeners.broker_settings import read_settings

PLAINTEXT, SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
TWO = "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9093"
MAP = "PLAINTEXT:PLAINTEXT,INTERNAL:SSL"


def listeners_of(**config: str) -> Listeners:
    return read_settings({key.replace("_", "."): text for key, text in config.items()}).listeners


def test_listeners_have_names_and_protocols_of_the_map() -> None:
    listeners = listeners_of(listeners=TWO, listener_security_protocol_map=MAP)
    assert listeners.endpoints == (
        Endpoint("PLAINTEXT", PLAINTEXT, "127.0.0.1", 9092),
        Endpoint("INTERNAL", SSL, "::1", 9093),
    )
    assert listeners.inter_broker == "PLAINTEXT"


def test_names_are_in_capitals_however_they_were_written() -> None:
    listeners = listeners_of(
        listeners="internal://:9093",
        listener_security_protocol_map="Internal:ssl",
        inter_broker_listener_name="InterNal",
    )
    assert listeners.endpoints == (Endpoint("INTERNAL", SSL, "", 9093),)
    assert listeners.inter_broker == "INTERNAL"


def test_a_broker_registers_what_is_advertised_and_the_addresses_of_its_sockets_otherwise() -> None:
    bound = {"PLAINTEXT": ("127.0.0.1", 9092), "INTERNAL": ("::1", 9093)}
    plain = listeners_of(listeners=TWO, listener_security_protocol_map=MAP)
    assert list(map(str, plain.registered(bound))) == ["PLAINTEXT://127.0.0.1:9092", "INTERNAL://[::1]:9093"]
    told = listeners_of(
        listeners=TWO, listener_security_protocol_map=MAP, advertised_listeners="PLAINTEXT://log.example:0"
    )
    assert list(map(str, told.registered(bound))) == ["PLAINTEXT://log.example:9092"]


def test_an_address_of_the_command_line_is_one_plaintext_listener() -> None:
    settings = read_settings({"listeners": TWO, "listener.security.protocol.map": MAP}, listen=("::1", 0))
    assert list(map(str, settings.listeners.endpoints)) == ["PLAINTEXT://[::1]:0"]
    assert settings.listen == ("::1", 0)
    assert settings.config.get("listeners") == ("PLAINTEXT://[::1]:0",), "what DescribeConfigs tells"


def test_without_any_address_a_broker_is_described_as_where_it_listens() -> None:
    assert read_settings({}).config.get("listeners") == ("PLAINTEXT://127.0.0.1:9092",)


def test_listeners_of_controllers_are_left_out() -> None:
    listeners = listeners_of(listeners="PLAINTEXT://:9092,CONTROLLER://:9093", controller_listener_names="CONTROLLER")
    assert [endpoint.listener_name for endpoint in listeners.endpoints] == ["PLAINTEXT"]


def test_one_port_may_have_an_address_of_each_version() -> None:
    listeners = listeners_of(
        listeners="PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9092", listener_security_protocol_map=MAP
    )
    assert [endpoint.port for endpoint in listeners.endpoints] == [9092, 9092]


REFUSED = [
    (
        {"listeners": "nonsense"},
        "Error creating broker listeners from '[nonsense]': Unable to parse nonsense to a broker",
    ),
    (
        {"listeners": "X://:1"},
        "Error creating broker listeners from '[X://:1]': No security protocol defined for listener X",
    ),
    ({"listeners": "PLAINTEXT://:70000"}, "70000 is not a port"),
    ({"listeners": "://:1"}, "The provided listener name is null or empty string"),
    (
        {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
        "Each listener must have a different name, listeners: PLAINTEXT://:1,PLAINTEXT://:2",
    ),
    (
        {"listeners": "PLAINTEXT://:1,SSL://:1"},
        "Each listener must have a different port, listeners: PLAINTEXT://:1,SSL://:1",
    ),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1"},
        "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6",
    ),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://h:1"},
        "Each listener must have a different port unless exactly one listener has an IPv4 address",
    ),
    (
        {"listener_security_protocol_map": "PLAINTEXT:NONE"},
        "Invalid security protocol `NONE` defined in listener.security.protocol.map",
    ),
    ({"listener_security_protocol_map": "PLAINTEXT"}, "Error parsing configuration property"),
    (
        {"inter_broker_listener_name": "SSL", "security_inter_broker_protocol": "SSL"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
    ),
    (
        {"inter_broker_listener_name": "INSIDE"},
        "Listener with name INSIDE defined in inter.broker.listener.name not found in listener.security.protocol.map.",
    ),
    (
        {"listeners": "SSL://:1"},
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
        "on currently configured listeners are SSL",
    ),
    (
        {"advertised_listeners": "PLAINTEXT://h:1,SSL://h:2"},
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
        "PLAINTEXT,SSL. The valid options based on the current configuration are PLAINTEXT",
    ),
    (
        {"advertised_listeners": "PLAINTEXT://0.0.0.0:1"},
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    ),
    ({"listeners": ""}, "Configuration 'listeners' must not be empty. Valid values include: any non-empty value"),
]


@pytest.mark.parametrize(("config", "sentence"), REFUSED)
def test_what_does_not_go_together_is_refused_in_apache_kafkas_words(config: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listeners_of(**config)
    assert sentence in str(refused.value)
