"""Unmodified clients log in by every mechanism, on a real broker process; and learn at once that they may not."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiokafka
import aiokafka.errors
import jwt
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from oncelog.client.blocking import Client
from oncelog.client.config import ClientConfig
from oncelog.client.errors import AuthenticationFailed
from tests.peers.apache_kafka import KafkaTools
from tests.peers.process import Process, free_ports
from tests.unit.runtime.security.signing import document, ec_key, jwk
from tests.waiting import HANG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
]
PACKAGE = "org.apache.kafka.common.security"
USERS = [("PLAIN", "alice"), ("SCRAM-SHA-256", "carol"), ("SCRAM-SHA-512", "carol")]
PASSWORD = "the-secret"


@dataclass
class Secured:
    """A broker with a listener of each kind."""

    process: Process
    plaintext: str
    sasl: str
    oauth: str
    log: Path


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("sasl")
    (directory / "keys.json").write_bytes(document(jwk(ec_key(), "k")))
    plaintext, sasl, oauth = (f"127.0.0.1:{port}" for port in free_ports(3))
    values = {
        "listeners": f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl},OAUTH://{oauth}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,OAUTH:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required "
        'user_alice="${env:ONCELOG_TEST_PASSWORD}";',
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "listener.name.oauth.sasl.oauthbearer.expected.issuer": "issuer",
        "listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.audience": "oncelog",
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    program = str(Path(sys.executable).with_name("oncelog"))
    command = [program, "serve", "--config", str(path), "--data-dir", str(directory / "data")]
    process = Process(command, directory / "broker.log", {"ONCELOG_TEST_PASSWORD": PASSWORD})
    host, port = plaintext.split(":")
    process.wait_ready(host, int(port))
    admin = AdminClient({"bootstrap.servers": plaintext})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one in a request, as there
        made = UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([made]).values():
            done.result(HANG_S)
    yield Secured(process, plaintext, sasl, oauth, directory / "broker.log")
    process.stop()
    assert PASSWORD not in (directory / "broker.log").read_text()


def librdkafka(servers: str, mechanism: str, user: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_librdkafka(broker, mechanism, user):
    admin = AdminClient(librdkafka(broker.sasl, mechanism, user))
    assert admin.list_topics(timeout=HANG_S).brokers


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_librdkafka_is_told_of_a_wrong_password(broker, mechanism, user):
    errors: list[KafkaError] = []
    config = {**librdkafka(broker.sasl, mechanism, user, "wrong"), "error_cb": errors.append, "log_level": "0"}
    producer = Producer(config)
    deadline_s = time.monotonic() + HANG_S
    while not errors and time.monotonic() < deadline_s:
        producer.poll(0.05)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.2)


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_kafka_python(broker, mechanism, user):
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=PASSWORD,
    )
    assert producer.send(f"kafka-python-{mechanism}", b"x").get(HANG_S).offset == 0
    producer.close()


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_aiokafka(broker, mechanism, user):
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            assert (await producer.send_and_wait(f"aiokafka-{mechanism}", b"x")).offset == 0
        finally:
            await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_our_own_client(broker, mechanism, user):
    good = ClientConfig.from_properties(librdkafka(broker.sasl, mechanism, user))
    with Client(broker.sasl, config=good) as client:
        client.refresh()
        assert client.view.brokers
    wrong = ClientConfig.from_properties(librdkafka(broker.sasl, mechanism, user, "wrong"))
    with (
        pytest.raises(AuthenticationFailed),
        Client(broker.sasl, config=wrong) as client,
    ):
        client.refresh()


def token(**changes: object) -> str:
    now_s = int(time.time())
    claims = {"iss": "issuer", "aud": "oncelog", "sub": "service", "iat": now_s, "exp": now_s + 600, **changes}
    return jwt.encode(claims, ec_key(), "ES256", headers={"kid": "k"})


def by_token(broker: Secured, value: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.oauth,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (value, time.time() + 600),
    }


def test_a_signed_token_lets_in(broker):
    admin = Producer(by_token(broker, token()))
    admin.poll(0)
    assert admin.list_topics(timeout=HANG_S).brokers


@pytest.mark.parametrize("changes", [{"aud": "another"}, {"iss": "another"}, {"exp": 1}])
def test_another_token_is_told_so(broker, changes):
    errors: list[KafkaError] = []
    producer = Producer({**by_token(broker, token(**changes)), "error_cb": errors.append, "log_level": 0})
    deadline_s = time.monotonic() + HANG_S
    while not errors and time.monotonic() < deadline_s:
        producer.poll(0.05)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


def java_config(tmp_path: Path, mechanism: str, user: str, password: str) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={PACKAGE}.{module} required username="{user}" password="{password}";\n'
    )
    return str(path)


@pytest.mark.java
@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_javas_tools(broker, tmp_path, mechanism, user):
    tools = KafkaTools(broker.sasl)
    good = java_config(tmp_path, mechanism, user, PASSWORD)
    done = tools.run("kafka-topics", "--create", "--topic", f"java-{mechanism}", "--command-config", good)
    assert done.returncode == 0, done.stderr
    bad = java_config(tmp_path, mechanism, user, "wrong")
    done = tools.run("kafka-topics", "--list", "--command-config", bad)
    assert done.returncode != 0
    assert "Authentication failed" in done.stdout + done.stderr


@pytest.mark.java
def test_kafka_configs_makes_and_deletes_users(broker, tmp_path):
    tools = KafkaTools(broker.plaintext)
    entity = ("--entity-type", "users", "--entity-name", "dave")
    done = tools.run("kafka-configs", "--alter", "--add-config", "SCRAM-SHA-256=[password=daves]", *entity)
    assert done.returncode == 0, done.stderr
    config = java_config(tmp_path, "SCRAM-SHA-256", "dave", "daves")
    done = KafkaTools(broker.sasl).run("kafka-topics", "--list", "--command-config", config)
    assert done.returncode == 0, done.stderr
    done = tools.run("kafka-configs", "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    assert done.returncode == 0, done.stderr
    done = KafkaTools(broker.sasl).run("kafka-topics", "--list", "--command-config", config)
    assert "Authentication failed" in done.stdout + done.stderr
