"""TLS and SASL against an Apache Kafka that demands them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.producer import Producer
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.errors import AuthenticationFailed, ClientError, ConfigError, NoBrokerReachable
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.sasl.exchange import Token
from oncelog.client.security import UnsecuredToken
from tests.interop.client.secured import LIFETIME_MS, PASSWORD, USER, SecuredKafka, make_certificates

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    directory = tmp_path_factory.mktemp("secured")
    make_certificates(directory)
    with SecuredKafka(directory) as running:
        running.add_user()
        with Client(running.bootstrap_servers) as client:
            create_topic(client, NewTopic("t", partitions=1))
        yield running


def tls(kafka: SecuredKafka, **given: str) -> dict[str, str]:
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(kafka.certificates / "ca.pem")}
    return settings | {name.replace("_", "."): value for name, value in given.items()}


def sasl(kafka: SecuredKafka, mechanism: str, protocol: str = "SASL_SSL", password: str = PASSWORD) -> dict[str, str]:
    settings = {"security.protocol": protocol, "sasl.mechanisms": mechanism, "request.timeout.ms": "10000"}
    settings |= {"sasl.username": USER, "sasl.password": password}
    return settings | {"ssl.ca.location": str(kafka.certificates / "ca.pem")}


def round_trip(address: str, config: dict[str, str] | ClientConfig, size: int = 10) -> None:
    """Records go in and come out again over every kind of connection the client opens."""
    partition = TopicPartition(TopicName("t"), 0)
    with Client(address, config=config) as client:
        start = client.list_offsets({partition: -1})[partition].offset
        with Producer(client) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number * size)
        end = client.list_offsets({partition: -1})[partition].offset
        fetched = client.fetch({partition: start}, until={partition: end})
        assert [r.value for item in fetched for r in read_fetched(item)] == [b"%d" % n * size for n in range(5)]


def test_tls_with_small_and_large_records(kafka: SecuredKafka) -> None:
    round_trip(kafka.address("SSL"), tls(kafka))
    round_trip(kafka.address("SSL"), tls(kafka), size=150_000)


def test_certificates_and_host_names_are_verified_unless_that_is_switched_off(kafka: SecuredKafka) -> None:
    with pytest.raises(AuthenticationFailed, match=r"certificate.*ssl\.ca\.location"):
        round_trip(kafka.address("SSL"), {"security.protocol": "SSL"})
    stranger = tls(kafka, ssl_ca_location=str(kafka.certificates / "stranger.pem"))
    with pytest.raises(AuthenticationFailed, match="certificate"):
        round_trip(kafka.address("SSL"), stranger)
    with pytest.raises(AuthenticationFailed, match=r"127\.0\.0\.1"):
        round_trip(kafka.address("MISNAMED"), tls(kafka))
    round_trip(kafka.address("MISNAMED"), tls(kafka, ssl_endpoint_identification_algorithm="none"))
    round_trip(kafka.address("MISNAMED"), stranger | {"enable.ssl.certificate.verification": "false"})


def test_a_client_with_a_certificate_and_one_without(kafka: SecuredKafka) -> None:
    mine = {"ssl.certificate.location": str(kafka.certificates / "client.pem")}
    mine |= {"ssl.key.location": str(kafka.certificates / "client.key")}
    round_trip(kafka.address("MUTUAL"), tls(kafka) | mine)
    java = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(kafka.certificates / "client.both.pem")}
    round_trip(kafka.address("MUTUAL"), tls(kafka) | java)
    with pytest.raises(ClientError):
        round_trip(kafka.address("MUTUAL"), tls(kafka) | {"bootstrap.timeout.ms": "0"})
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location"):
        round_trip(kafka.address("MUTUAL"), tls(kafka, ssl_certificate_location="/nowhere"))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_user_with_a_password(kafka: SecuredKafka, mechanism: str, protocol: str) -> None:
    round_trip(kafka.address(protocol), sasl(kafka, mechanism, protocol))
    with pytest.raises(AuthenticationFailed, match="failed") as caught:
        round_trip(kafka.address(protocol), sasl(kafka, mechanism, protocol, "wrong"))
    assert "wrong" not in str(caught.value)


def test_bearer_tokens_by_settings_and_by_callback(kafka: SecuredKafka) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}
    round_trip(kafka.address("SASL_PLAINTEXT"), settings | unsecured)
    config = ClientConfig.from_properties(settings, token=UnsecuredToken("alice"))
    round_trip(kafka.address("SASL_PLAINTEXT"), config)
    expired = ClientConfig.from_properties(settings, token=UnsecuredToken("alice", life_s=-3600))
    with pytest.raises(AuthenticationFailed):
        round_trip(kafka.address("SASL_PLAINTEXT"), expired)
    nonsense = ClientConfig.from_properties(settings, token=lambda: Token("nonsense"))
    with pytest.raises(AuthenticationFailed):
        round_trip(kafka.address("SASL_PLAINTEXT"), nonsense)


def test_the_wrong_door_is_named(kafka: SecuredKafka) -> None:
    at_once = {"bootstrap.timeout.ms": "0", "socket.connection.setup.timeout.ms": "3000"}
    with pytest.raises(NoBrokerReachable, match="TLS port"):
        round_trip(kafka.bootstrap_servers, tls(kafka) | at_once)
    with pytest.raises(ClientError):
        round_trip(kafka.address("SSL"), at_once)
    with pytest.raises(AuthenticationFailed, match=r"another listener|does not have SASL mechanism|failed"):
        round_trip(kafka.bootstrap_servers, sasl(kafka, "PLAIN", "SASL_PLAINTEXT") | at_once)


def test_a_connection_is_authenticated_again_before_its_time_is_over(kafka: SecuredKafka) -> None:
    with Client(kafka.address("SASL_SSL"), config=sasl(kafka, "PLAIN")) as client:
        link = client.link()
        deadline = time.monotonic() + 2.2 * LIFETIME_MS / 1000
        while time.monotonic() < deadline:
            client.metadata(["t"])
            time.sleep(0.05)
        assert client.link() is link


def test_a_transaction_over_tls_and_scram(kafka: SecuredKafka) -> None:
    with Client(kafka.address("SASL_SSL"), config=sasl(kafka, "SCRAM-SHA-512")) as client:
        producer = TransactionalProducer(client, TransactionSettings("secured"))
        producer.initialize()
        with producer.transaction():
            producer.send("t", b"in a transaction")
        producer.close()


def test_the_same_over_asyncio(kafka: SecuredKafka) -> None:
    async def run(address: str, settings: dict[str, str]) -> None:
        async with AsyncClient(address, config=settings) as client:
            producer = AsyncTransactionalProducer(client, TransactionSettings("secured-asyncio"))
            await producer.initialize()
            deadline = time.monotonic() + 1.6 * LIFETIME_MS / 1000
            while time.monotonic() < deadline:
                async with producer.transaction():
                    await producer.send("t", b"in a transaction")
                await asyncio.sleep(0.05)

    asyncio.run(run(kafka.address("SASL_SSL"), sasl(kafka, "PLAIN")))
    asyncio.run(run(kafka.address("SASL_SSL"), sasl(kafka, "SCRAM-SHA-256")))
    with pytest.raises(AuthenticationFailed, match="failed"):
        asyncio.run(run(kafka.address("SASL_SSL"), sasl(kafka, "SCRAM-SHA-256", password="wrong")))
    with pytest.raises(AuthenticationFailed, match="certificate"):
        asyncio.run(run(kafka.address("SSL"), {"security.protocol": "SSL"}))


def test_the_command_line_with_a_file_of_settings(kafka: SecuredKafka, tmp_path: Path) -> None:
    from oncelog.cli.topic.commands import app

    escaped = PASSWORD.replace('"', '\\\\"')
    module = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{escaped}";'
    settings = sasl(kafka, "SCRAM-SHA-256")
    del settings["sasl.username"], settings["sasl.password"]
    settings["sasl.jaas.config"] = module
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    command = ["list", "-b", kafka.address("SASL_SSL"), "--command-config", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "t" in result.output.split()
    refused = CliRunner().invoke(app, [*command, "-X", "sasl.jaas.config=x.PlainLoginModule required"])
    assert refused.exit_code != 0
