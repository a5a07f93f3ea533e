"""Apache Kafka with TLS and SASL listeners beside the plain one, and the certificates for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import admin

from tests.peers.apache_kafka import ApacheKafka
from tests.peers.process import free_ports
from tests.waiting import HANG_S

USER, PASSWORD = "alice", 'quotes " and = and ,'
LIFETIME_MS = 1_500
_MODULES = "org.apache.kafka.common.security"


def make_certificates(directory: Path) -> None:
    """An authority, a broker's certificate for 127.0.0.1, another for a wrong name, and a client's."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-days", "2", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(
        "req", "-x509", *curve, "-days", "2", "-subj", "/CN=stranger", "-keyout", "stranger.key", "-out", "stranger.pem"
    )
    for name, subject in (("broker", "IP:127.0.0.1"), ("misnamed", "DNS:elsewhere.example"), ("client", "DNS:client")):
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / f"{name}.ext").write_text(f"subjectAltName={subject}\n", encoding="ascii")
        signed = ("-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        openssl("x509", "-req", *signed, "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        both = (directory / f"{name}.key").read_text("ascii") + (directory / f"{name}.pem").read_text("ascii")
        (directory / f"{name}.both.pem").write_text(both, encoding="ascii")


class SecuredKafka(ApacheKafka):
    """Listeners SSL, MUTUAL (TLS with client certificates), MISNAMED, SASL_PLAINTEXT and SASL_SSL."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "kafka", heap_mb=320)
        self.certificates = directory
        names = ("SSL", "MUTUAL", "MISNAMED", "SASL_PLAINTEXT", "SASL_SSL")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))

    def address(self, listener: str) -> str:
        """The address of a listener."""
        return f"{self.host}:{self.ports[listener]}"

    def add_user(self) -> None:
        """Give the user SCRAM credentials."""
        theirs: Any = admin
        client = theirs.AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for mechanism in (theirs.ScramMechanism.SCRAM_SHA_256, theirs.ScramMechanism.SCRAM_SHA_512):
            information = theirs.ScramCredentialInfo(mechanism, 4096)
            added = theirs.UserScramCredentialUpsertion(USER, information, PASSWORD.encode())
            for future in client.alter_user_scram_credentials([added]).values():
                future.result(HANG_S)

    def _write_configuration(self) -> Path:
        path = super()._write_configuration()
        given = dict(line.split("=", 1) for line in path.read_text("utf-8").splitlines())
        for key in ("listeners", "advertised.listeners"):
            given[key] += "".join(f",{name}://{self.address(name)}" for name in self.ports)
        protocols = {"MUTUAL": "SSL", "MISNAMED": "SSL", "PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        protocols |= {name: name for name in self.ports if name not in protocols}
        given["listener.security.protocol.map"] = ",".join(f"{name}:{value}" for name, value in protocols.items())
        for name in ("ssl", "mutual", "misnamed", "sasl_ssl"):
            certificate = "misnamed" if name == "misnamed" else "broker"
            prefix = f"listener.name.{name}."
            given[prefix + "ssl.keystore.type"] = given[prefix + "ssl.truststore.type"] = "PEM"
            given[prefix + "ssl.keystore.location"] = str(self.certificates / f"{certificate}.both.pem")
            given[prefix + "ssl.truststore.location"] = str(self.certificates / "ca.pem")
        given["listener.name.mutual.ssl.client.auth"] = "required"
        escaped = PASSWORD.replace('"', r"\\\"")
        modules = {
            "plain": f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{escaped}";',
            "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";',
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            given[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(module.upper() for module in modules)
            for mechanism, module in modules.items():
                given[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = module
        given["listener.name.sasl_ssl.plain.connections.max.reauth.ms"] = str(LIFETIME_MS)
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()), encoding="utf-8")
        return path
