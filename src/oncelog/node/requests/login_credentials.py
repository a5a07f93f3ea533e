"""Credentials that logins are checked against: of the configuration, of the cluster's metadata, and signed tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from oncelog.base.tree import CommitOutcome, Create
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.client_entities import ClientEntities, ClientEntity
from oncelog.core.controller.image.cluster_image import configs_of
from oncelog.core.sasl.exchange import OAUTHBEARER, PLAIN, Exchange
from oncelog.core.sasl.oauthbearer import OAuthBearer
from oncelog.core.sasl.plain import Plain
from oncelog.core.sasl.scram import ScramServer
from oncelog.core.sasl.scram_credentials import ScramCredential
from oncelog.core.sasl.scram_strangers import CredentialForms
from oncelog.core.sasl.scram_users import credential_for, forms_of_users
from oncelog.core.sasl.settings import ListenerSasl
from oncelog.core.sasl.tokens import SignedTokens, VerifySignature
from oncelog.node.access.redaction import SECRET_BYTES
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog

NONCE_BYTES: Final = 24


class LoginCredentials:
    """Makes the exchange of a mechanism."""

    def __init__(self, cluster: Metadata, commits: MetadataLog) -> None:
        self._cluster = cluster
        self._commits = commits
        self._proposed: bytes | None = None
        """The secret that this broker has written, or tries to."""
        self._formed_of: ClientEntities | None = None
        """The users whose forms are known."""
        self._forms: Mapping[str, CredentialForms] = {}
        self.key_sets: dict[str, VerifySignature] = {}
        """The public keys by which tokens are verified, by listener; the outside's."""
        self.added_passwords: Mapping[str, str] = {}
        """Passwords of PLAIN beside those of the configuration, which cannot change while the broker runs; a test's."""

    def exchange(self, settings: ListenerSasl, mechanism: str) -> Exchange:
        """A new exchange by a mechanism that the listener has."""
        if mechanism == PLAIN:
            return Plain({**settings.plain_passwords, **self.added_passwords})
        if mechanism == OAUTHBEARER:
            assert settings.token_rules is not None
            return OAuthBearer(SignedTokens(settings.token_rules, partial(self.key_sets.get, settings.listener_name)))
        nonce = self._cluster.random_bytes(NONCE_BYTES).hex()
        return ScramServer(mechanism, partial(self._credential, mechanism), nonce)

    def _credential(self, mechanism: str, user: str) -> ScramCredential:
        image = self._cluster.image
        if image.client_entities is not self._formed_of:  # most changes of the image are of something else
            users = (each.configs for entity, each in image.client_entities.items() if entity.user)
            self._formed_of, self._forms = image.client_entities, forms_of_users(users)
        configs = configs_of(image, ClientEntity(user=user))
        return credential_for(self._secret(), mechanism, user, configs, self._forms[mechanism])

    def _secret(self) -> bytes:
        """The cluster's secret; the first broker that needs one writes it."""
        known = self._cluster.image.login_secret
        if known is not None:
            return known
        if self._proposed is None:
            self._proposed = self._cluster.random_bytes(SECRET_BYTES)
            self._commits.commit([Create(layout.LOGIN_SECRET, self._proposed)], self._written)
        return self._proposed

    def _written(self, outcome: CommitOutcome) -> None:
        if outcome is not CommitOutcome.COMMITTED:
            self._proposed = None  # another broker's is there, or it is tried again with the next login
