"""SASL logins: no request is served on a SASL listener before its client is authenticated (KIP-43, 152, 368).

``Logins.judge`` sees every frame first: it passes what the connection's phase allows (``login_state``), answers the
login's own frames, and ends the connection otherwise. Credentials come from the configuration, from the cluster's
metadata, and from signed tokens. Rules:

1. Before authentication only ApiVersions, SaslHandshake and SaslAuthenticate are decoded, which have no arrays, in
   frames of at most ``sasl.server.max.receive.size`` bytes.
2. A failed login is answered after ``connection.failed.authentication.delay.ms``, then closed. Nothing is read
   meanwhile.
3. Error responses reveal no more than Apache Kafka's, and the same for users that do not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.tree import CommitOutcome, Create
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.client_entities import ClientEntities, ClientEntity
from oncelog.core.controller.image.cluster_image import configs_of
from oncelog.core.sasl.exchange import OAUTHBEARER, PLAIN, Check, Exchange, InvalidToken, Login, LoginRefused, Step
from oncelog.core.sasl.oauthbearer import OAuthBearer
from oncelog.core.sasl.plain import Plain
from oncelog.core.sasl.scram import ScramServer
from oncelog.core.sasl.scram_credentials import ScramCredential
from oncelog.core.sasl.settings import ListenerSasl, listener_sasl
from oncelog.core.sasl.tokens import SignedTokens, VerifySignature
from oncelog.core.sasl.unknown_users import CredentialForms, credential_for, forms_of_users
from oncelog.handlers import registry
from oncelog.handlers.access.sasl import unsupported_mechanism
from oncelog.handlers.broker.waits import Lane, Offload, Steps
from oncelog.handlers.cluster.versions import is_valid
from oncelog.node.access.redaction import SECRET_BYTES
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Outbox, Report
from oncelog.node.requests.login_state import LoginAnswer, LoginEnded, LoginPhase, LoginState, LoginVerification
from oncelog.ports import Buffer
from oncelog.wire.header import RequestHeader, decode_request_header, encode_response
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from oncelog.wire.chunks import Chunk
    from oncelog.wire.message import Message

NONCE_BYTES: Final = 24


class LoginCredentials:
    def __init__(self, cluster: Metadata, commits: MetadataLog) -> None:
        self._cluster = cluster
        self._commits = commits
        # The secret that this broker has written, or is writing.
        self._proposed: bytes | None = None
        # The users whose credential forms are cached.
        self._formed_of: ClientEntities | None = None
        self._forms: Mapping[str, CredentialForms] = {}
        self.key_sets: dict[str, VerifySignature] = {}
        """Public keys that verify tokens, by listener; set by the runtime."""
        self.added_passwords: Mapping[str, str] = {}
        """PLAIN passwords in addition to the configured ones, which are fixed at start; for tests."""

    def exchange(self, settings: ListenerSasl, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return Plain({**settings.plain_passwords, **self.added_passwords})
        if mechanism == OAUTHBEARER:
            assert settings.token_rules is not None
            return OAuthBearer(SignedTokens(settings.token_rules, partial(self.key_sets.get, settings.listener_name)))
        nonce = self._cluster.random_bytes(NONCE_BYTES).hex()
        return ScramServer(mechanism, partial(self._credential, mechanism), nonce)

    def _credential(self, mechanism: str, user: str) -> ScramCredential:
        image = self._cluster.image
        if image.client_entities is not self._formed_of:  # most changes of the image leave the users alone
            users = (entity_image.configs for entity, entity_image in image.client_entities.items() if entity.user)
            self._formed_of, self._forms = image.client_entities, forms_of_users(users)
        configs = configs_of(image, ClientEntity(user=user))
        return credential_for(self._secret(), mechanism, user, configs, self._forms[mechanism])

    def _secret(self) -> bytes:
        """The cluster's secret; the first broker that needs it creates it."""
        secret = self._cluster.image.login_secret
        if secret is not None:
            return secret
        if self._proposed is None:
            self._proposed = self._cluster.random_bytes(SECRET_BYTES)
            self._commits.commit([Create(layout.LOGIN_SECRET, self._proposed)], self._written)
        return self._proposed

    def _written(self, outcome: CommitOutcome) -> None:
        if outcome is not CommitOutcome.COMMITTED:
            self._proposed = None  # another broker has written one, or the next login tries again


# Answers with what a call returns or raises (LoginRefused).
_Answering = Callable[[Callable[[], Step]], "LoginAnswer | LoginEnded"]

AGAIN_AFTER_MS: Final = 1000
"""A client may re-authenticate once in this time; earlier attempts are answered ILLEGAL_SASL_STATE."""
_USER: Final = "User"
_ERROR_FIELDS: Final[Mapping[str, object]] = {
    "error_code": ErrorCode.ILLEGAL_SASL_STATE,
    "error_message": "Request is not valid given the current SASL state.",
    "node_id": -1,
    "port": -1,
}
_API_VERSIONS: Final = ApiVersionsRequest.API_KEY
_HANDSHAKE: Final = SaslHandshakeRequest.API_KEY
_AUTHENTICATE: Final = SaslAuthenticateRequest.API_KEY


SUCCEEDED: Final = "succeeded"
REAUTHENTICATED: Final = "reauthenticated"
FAILED: Final = "failed"
EXPIRED: Final = "expired"


class LoginOutcome(NamedTuple):
    """An outcome of logins, as counted; ``mechanism`` is empty if none was agreed on."""

    listener_name: str
    mechanism: str
    outcome: str


class Logins:
    def __init__(
        self, config: BrokerConfig, credentials: LoginCredentials, deadlines: Deadlines, outbox: Outbox
    ) -> None:
        """``config`` is that of the start: a listener's login settings change only with a restart, as in Apache
        Kafka."""
        self.credentials = credentials
        self._deadlines = deadlines
        self._outbox = outbox
        self._config = config
        self._settings: dict[str, ListenerSasl] = {}
        self.outcomes: Counter[LoginOutcome] = Counter()

    def begin(self, listener_name: str) -> LoginState:
        settings = self._settings.get(listener_name)
        if settings is None:
            settings = self._settings[listener_name] = self._read(listener_name)
        return LoginState(settings)

    def _read(self, listener_name: str) -> ListenerSasl:
        """A listener's settings; if they are invalid, without mechanisms, so that all logins fail."""
        try:
            return listener_sasl(self._config, listener_name)
        except ConfigError as error:
            self._outbox.effects.append(Report("error", f"no client can log in on listener {listener_name}: {error}"))
            return ListenerSasl(listener_name, ())

    def judge(self, state: LoginState, frame: Buffer) -> LoginAnswer | LoginEnded | LoginVerification | None:
        """The answer to a frame; None: it is decided like any other. Raises PeerError, which closes the connection at
        once."""
        if state.phase is LoginPhase.LOGGED_IN:
            return self._judge_logged_in(state, frame)
        if len(frame) > state.settings.max_receive_bytes:
            return self._refused(state, f"{len(frame)} bytes before authentication")
        try:
            return self._judge_login(state, frame)
        except LoginRefused as refusal:  # a token without a header cannot be answered
            return self._refused(state, str(refusal))

    def _judge_login(self, state: LoginState, frame: Buffer) -> LoginAnswer | LoginEnded | LoginVerification | None:
        if state.phase is LoginPhase.SWITCHED:
            return self._refused(state, "another mechanism than the first time")
        if state.phase is LoginPhase.EXCHANGE and not state.with_headers:
            return self._step(state, None, bytes(frame), partial(self._answer_bare, state))
        header, position = decode_request_header(frame)
        body = memoryview(frame)[position:]
        if state.phase is LoginPhase.EXCHANGE:
            if header.api_key == _AUTHENTICATE:
                return self._authenticate(state, header, body)
            return self._out_of_order(state, header)
        if header.api_key == _HANDSHAKE:
            return self._handshake(state, header, body)
        if header.api_key != _API_VERSIONS or state.phase is not LoginPhase.VERSIONS:
            return self._refused(state, f"API {header.api_key} before authentication")
        if ApiVersionsRequest.MIN_VERSION <= header.api_version <= ApiVersionsRequest.MAX_VERSION:
            request = ApiVersionsRequest.decode(body, header.api_version)
            if is_valid(request, header.api_version):
                state.phase = LoginPhase.HANDSHAKE
        return None

    def _judge_logged_in(self, state: LoginState, frame: Buffer) -> LoginAnswer | LoginEnded | None:
        if state.ends_ms is None:
            return None
        now_ms = self._deadlines.now_ms
        if len(frame) >= 2 and frame[0] << 8 | frame[1] == _HANDSHAKE:
            if state.began_again_ms is not None and now_ms - state.began_again_ms < AGAIN_AFTER_MS:
                return None
            header, position = decode_request_header(frame)
            state.began_again_ms = now_ms
            return self._handshake(state, header, memoryview(frame)[position:])
        if now_ms > state.ends_ms:
            self._count(state, EXPIRED)
            return LoginEnded("its session has expired")
        return None

    def _handshake(self, state: LoginState, header: RequestHeader, body: memoryview) -> LoginAnswer | LoginEnded:
        request = SaslHandshakeRequest.decode(body, header.api_version)
        offered = list(state.settings.mechanisms)
        if request.mechanism not in offered:
            # A client that re-authenticates gets no list of mechanisms.
            chunks = () if state.again else _encoded(header, unsupported_mechanism(offered))
            return self._refused(state, f"SASL mechanism {request.mechanism[:40]!r} is not enabled", chunks)
        if state.again and request.mechanism != state.mechanism:
            state.phase = LoginPhase.SWITCHED
        else:
            state.phase, state.mechanism = LoginPhase.EXCHANGE, request.mechanism
            state.with_headers = header.api_version > 0
            state.exchange = self.credentials.exchange(state.settings, request.mechanism)
        return LoginAnswer(_encoded(header, SaslHandshakeResponse(mechanisms=offered)))

    def _authenticate(
        self, state: LoginState, header: RequestHeader, body: memoryview
    ) -> LoginAnswer | LoginEnded | LoginVerification:
        request = SaslAuthenticateRequest.decode(body, header.api_version)
        answer = partial(self._answer_with_header, state, header)
        return self._step(state, header, bytes(request.auth_bytes), answer)

    def _answer_with_header(
        self, state: LoginState, header: RequestHeader, step_call: Callable[[], Step]
    ) -> LoginAnswer | LoginEnded:
        try:
            step = step_call()
            lifetime_ms = 0 if step.login is None else self._log_in(state, step.login)
        except LoginRefused as refusal:
            message = _generic(state) if refusal.shown is None else refusal.shown
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b""
            )
            return self._refused(state, str(refusal), _encoded(header, response))
        response = SaslAuthenticateResponse(error_message="", auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)
        return LoginAnswer(_encoded(header, response), None if step.login is None else state.principal)

    def _answer_bare(self, state: LoginState, step_call: Callable[[], Step]) -> LoginAnswer:
        step = step_call()
        if step.login is not None:
            self._log_in(state, step.login)
        chunks = [len(step.answer).to_bytes(4, "big") + step.answer]
        return LoginAnswer(chunks, None if step.login is None else state.principal)

    def _step(
        self, state: LoginState, header: RequestHeader | None, message: bytes, answer: _Answering
    ) -> LoginAnswer | LoginEnded | LoginVerification:
        """Process the client's next message and answer it; signatures are verified by a worker first."""
        assert state.exchange is not None
        try:
            step = state.exchange.step(message, self._deadlines.now_ms)
        except LoginRefused as refusal:
            return answer(partial(_raise, refusal))
        if isinstance(step, Check):
            return LoginVerification(header, self._verified(state, step, answer))
        return answer(lambda: step)

    def _verified(self, state: LoginState, check: Check, answer: _Answering) -> Steps[LoginAnswer | LoginEnded]:
        failure = yield Offload(_work_of(check), Lane.SMALL)
        try:
            return answer(lambda: check.then(failure, self._deadlines.now_ms))
        except LoginRefused as refusal:
            return self._refused(state, str(refusal))

    def _log_in(self, state: LoginState, login: Login) -> int:
        """Returns the session's lifetime in ms, 0: unlimited. Raises LoginRefused."""
        if state.again and state.principal != f"{_USER}:{login.user}":
            before = (state.principal or "").partition(":")[2]
            raise LoginRefused.saying(
                f"Cannot change principals during re-authentication from {_USER}.{before}: {_USER}.{login.user}"
            )
        self._count(state, REAUTHENTICATED if state.again else SUCCEEDED)
        state.principal = f"{_USER}:{login.user}"
        state.phase, state.exchange = LoginPhase.LOGGED_IN, None
        now_ms, max_ms = self._deadlines.now_ms, state.settings.max_reauth_ms[state.mechanism]
        lifetimes_ms = [max_ms] if max_ms else []
        if login.expires_ms is not None:
            lifetimes_ms.append(max(0, login.expires_ms - now_ms))
        lifetime_ms = min(lifetimes_ms, default=0)
        state.ends_ms = now_ms + lifetime_ms if lifetimes_ms else None
        return lifetime_ms

    def _out_of_order(self, state: LoginState, header: RequestHeader) -> LoginEnded:
        """End the login of a client that sends another API's request during the exchange; the response has only the
        error.
        """
        api = registry.BY_KEY.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            raise PeerError(f"API {header.api_key}, version {header.api_version}, during authentication")
        response: Message = getattr(import_module(f"oncelog.wire.messages.{api.module}"), f"{api.name}Response")()
        for name, value in _ERROR_FIELDS.items():
            if hasattr(response, name):
                setattr(response, name, value)
        return self._refused(state, f"{api.name} during authentication", _encoded(header, response))

    def _count(self, state: LoginState, outcome: str) -> None:
        self.outcomes[LoginOutcome(state.settings.listener_name, state.mechanism, outcome)] += 1

    def _refused(self, state: LoginState, reason: str, chunks: Sequence[Chunk] = ()) -> LoginEnded:
        self._count(state, FAILED)
        state.exchange = None
        return LoginEnded(f"authentication failed: {reason}", chunks, state.settings.failure_delay_ms)


def _raise(refusal: LoginRefused) -> Step:
    raise refusal


def _work_of(check: Check) -> Generator[None, None, InvalidToken | None]:
    """Run a check on a worker; returns the error that it raised."""
    yield
    try:
        check.work()
    except InvalidToken as error:
        return error
    return None


def _generic(state: LoginState) -> str:
    action = "re-authentication" if state.again else "authentication"
    return f"Authentication failed during {action} due to invalid credentials with SASL mechanism {state.mechanism}"


def _encoded(header: RequestHeader, response: Message) -> Sequence[Chunk]:
    return encode_response(header.correlation_id, header.api_key, header.api_version, response)
