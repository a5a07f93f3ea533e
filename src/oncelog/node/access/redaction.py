"""Keeps secrets out of flight recordings: passwords and tokens of logins, SCRAM credentials, sensitive configs.

In requests that change credentials or configs, and in values of the tree, ``hidden`` replaces each secret, so that they
can be replayed. A login is not recorded at all; a replay ends before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from oncelog.base.errors import PeerError
from oncelog.core.configs.keys import broker_key
from oncelog.core.controller.image import layout
from oncelog.ports import Buffer
from oncelog.wire.header import decode_request_header, encode_request
from oncelog.wire.messages.alter_configs import AlterConfigsRequest
from oncelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from oncelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest

HIDDEN: Final = "hidden"
SECRET_BYTES: Final = 32
"""Size of the random secret that protects logins; no id is as long."""
_SIZE: Final = 4
_TOKEN: Final = SaslAuthenticateRequest.API_KEY.to_bytes(2, "big")
_WITH_SECRETS: Final[Mapping[int, Any]] = {
    request.API_KEY: request
    for request in (AlterUserScramCredentialsRequest, AlterConfigsRequest, IncrementalAlterConfigsRequest)
}


def redacted_frame(frame: Buffer) -> bytes | None:
    """A request with its secrets hidden; None: nothing of it may be recorded."""
    start = bytes(frame[:2])
    if start == _TOKEN:
        return None
    message = _WITH_SECRETS.get(int.from_bytes(start, "big"))
    if message is None:
        return bytes(frame)
    try:
        header, position = decode_request_header(frame)
        request = message.decode(memoryview(bytes(frame))[position:], header.api_version)
        _hide(request)
        chunks = encode_request(header, request)
        return b"".join(chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview)))[_SIZE:]
    # A request that cannot be decoded cannot be redacted.
    except (PeerError, ValueError, struct.error):
        return None


def redacted_value(path: str, value: bytes | None) -> bytes | None:
    """The value of a tree node with its secrets hidden."""
    if value is None:
        return None
    if path == layout.LOGIN_SECRET:
        return HIDDEN.encode()
    if not path.startswith((layout.USER_CONFIGS, layout.BROKER_CONFIGS)) or not value:
        return value
    try:
        configs = layout.read_config(path, value)
    except layout.DamagedFact:
        return HIDDEN.encode()
    of_users = path.startswith(layout.USER_CONFIGS)
    hidden = {name: HIDDEN for name in configs if _is_secret(name, of_users=of_users)}
    return layout.config_value({**configs, **hidden}) if hidden else value


def _hide(request: Any) -> None:
    if isinstance(request, AlterUserScramCredentialsRequest):
        for upsertion in request.upsertions:
            upsertion.salt, upsertion.salted_password = HIDDEN.encode(), HIDDEN.encode()
        return
    for resource in request.resources:
        for config in resource.configs:
            if config.value is not None and _is_secret(config.name, of_users=False):
                config.value = HIDDEN


def _is_secret(name: str, *, of_users: bool) -> bool:
    """True for sensitive configs, and for unknown keys whose name suggests a secret."""
    if of_users:
        return name.startswith("SCRAM-")
    key = broker_key(name)
    return key.sensitive if key is not None else any(word in name for word in ("password", "secret", "jaas", "key"))
