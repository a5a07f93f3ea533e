"""Clients log in, in virtual time: sessions end in the middle of transactions (KIP-368), passwords are changed under
those who use them, and nothing acknowledged is lost, nothing half there, nobody served who has not logged in.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Final

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ClientError
from oncelog.client.machine.sasl.exchange import SaslSettings
from oncelog.client.security import SecuritySettings
from oncelog.core.sasl.exchange import SCRAM_SHA_256
from oncelog.core.sasl.initial_users import initial_user_text
from oncelog.core.sasl.scram_credentials import MIN_ITERATIONS, credential_of
from oncelog.node.requests.logins import FAILED, REAUTHENTICATED, SUCCEEDED
from oncelog.sim.virtual.world import CLIENT_CONFIG
from oncelog.testing.simulation import ClientHost, Simulation
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tests.simulation.testing.numbered_pairs import LEFT, RIGHT, Ledger, Writer, check, read_all

USERS: Final = ("admin", "writer-1", "writer-2")
_SALT: Final = b"salt of everybody"
_SCRAM_SHA_256_CODE: Final = 1
CONFIG: Final = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": SCRAM_SHA_256,
    "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_256,
    "connections.max.reauth.ms": "3000",
    "oncelog.initial.users": ";".join(
        initial_user_text(name, SCRAM_SHA_256, credential_of(SCRAM_SHA_256, name, _SALT, MIN_ITERATIONS))
        for name in USERS
    ),
}


def config_of(user: str, password: str | None = None) -> ClientConfig:
    """A client's that logs in; a password is the name of its user unless it was changed."""
    sasl = SaslSettings(SCRAM_SHA_256, user, password or user)
    return replace(CLIENT_CONFIG, security=SecuritySettings(None, sasl))


async def open_topics(host: ClientHost) -> None:
    async with host.client(config_of("admin")) as client:
        await client.metadata([LEFT, RIGHT], create=True)


async def change_passwords(host: ClientHost) -> None:
    """Give a writer another password, and its own back after a while."""
    number = 0
    async with host.client(config_of("admin")) as client:
        while not host.stopping:
            user = USERS[1 + number % 2]
            number += 1
            await client.request(_password(user, "another"))
            await asyncio.sleep(4)
            await client.request(_password(user, user))
            await asyncio.sleep(2)
        for user in USERS[1:]:
            await client.request(_password(user, user))


def _password(user: str, password: str) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=user,
                mechanism=_SCRAM_SHA_256_CODE,
                iterations=MIN_ITERATIONS,
                salt=_SALT,
                salted_password=hashlib.pbkdf2_hmac("sha256", password.encode(), _SALT, MIN_ITERATIONS),
            )
        ]
    )


async def knock(host: ClientHost) -> None:
    """Ask without a login, and with wrong ones."""
    while not host.stopping:
        for config in (CLIENT_CONFIG, config_of("writer-1", "wrong"), config_of("nobody", "wrong")):
            try:
                async with host.client(config) as client:
                    await client.metadata([LEFT])
            except ClientError:
                await asyncio.sleep(0.5)
            else:
                raise AssertionError("it was served")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "faults"), [(1, ()), (2, ("kill", "kill-client", "reset", "cut-down"))], ids=str)
def test_sessions_end_and_passwords_change(seed: int, faults: tuple[str, ...]) -> None:
    ledger = Ledger()
    with Simulation(seed, CONFIG) as simulation:
        simulation.run(open_topics)
        for name in USERS[1:]:
            simulation.supervise(name, Writer(name, ledger, config_of(name)))
        simulation.supervise("administrator", change_passwords)
        simulation.supervise("stranger", knock)
        if faults:
            simulation.trouble(30, *faults)
        else:
            simulation.wait(30)
        simulation.settle()
        simulation.wait(30)  # what a writer could not abort itself has timed out
        admin = config_of("admin")
        left, right = (simulation.run(lambda host, name=name: read_all(host, name, admin)) for name in (LEFT, RIGHT))
        outcomes = {outcome.outcome for outcome in simulation.world.broker.node.logins.outcomes}
    check(ledger, left, right)
    assert outcomes == {FAILED, SUCCEEDED, REAUTHENTICATED}, "of the broker's last life, its sessions ended, too"
    assert set(ledger.refusals) == {ErrorCode.SASL_AUTHENTICATION_FAILED}
