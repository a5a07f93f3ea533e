"""Fake credentials for logins of unknown users, so that they cannot be told from known ones.

1. Salt and keys derive from the name, the mechanism and a secret of the cluster: the same each time, on every broker.
2. Iterations and the form of the salt are distributed as among real users of that mechanism; tools differ in both.
3. Forms are ordered, and each name has a fixed place in the order: a change of one user changes few unknown names.

With only a handful of users a guess remains: a name whose form changes with another user's password is unknown.
"""

from __future__ import annotations

import hmac
import string
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from oncelog.base.scram_salts import SALT_BITS, salt_text
from oncelog.core.sasl.scram_credentials import (
    HASHES,
    MIN_ITERATIONS,
    DamagedCredential,
    ScramCredential,
    read_credential,
)

_LETTERS: Final = string.digits + string.ascii_letters
_ALPHABETS: Final = (
    b"0123456789abcdef",
    (string.digits + string.ascii_lowercase).encode(),
    _LETTERS.encode(),
    f"{_LETTERS}-_".encode(),
    f"{_LETTERS}+/=".encode(),
    bytes(range(0x20, 0x7F)),
    bytes(range(0x100)),
)
"""Alphabets of salts, the smallest first."""
_BASE_36: Final = 1
_BY_KAFKA: Final = 0
"""Stands for the lengths of a ``SALT_BITS`` number in base 36."""
# Apache Kafka's salt is a base-36 number, librdkafka's has 64 bytes.
_KAFKA_SIZES: Final = range(20, 27)
_PLACES: Final = 1 << 64


class CredentialForm(NamedTuple):
    """A credential's iterations, and the alphabet and length of its salt."""

    iterations: int
    alphabet: int
    salt_bytes: int


_DEFAULT: Final = CredentialForm(MIN_ITERATIONS, _BASE_36, _BY_KAFKA)


def form_of(credential: ScramCredential) -> CredentialForm:
    salt = credential.salt
    alphabet = next(number for number, letters in enumerate(_ALPHABETS) if not salt.translate(None, letters))
    if alphabet <= _BASE_36 and len(salt) in _KAFKA_SIZES:
        return CredentialForm(credential.iterations, _BASE_36, _BY_KAFKA)
    return CredentialForm(credential.iterations, alphabet, len(salt))


class CredentialForms:
    """Weighted by frequency among one mechanism's users."""

    def __init__(self, forms: Iterable[CredentialForm] = ()) -> None:
        counts = sorted(Counter(forms).items()) or [(_DEFAULT, 1)]
        self._forms = [form for form, _ in counts]
        self._ends = list(accumulate(count for _, count in counts))

    def at(self, place: int) -> CredentialForm:
        return self._forms[bisect_right(self._ends, place * self._ends[-1] // _PLACES)]


def fake_credential(secret: bytes, mechanism: str, user: str, forms: CredentialForms) -> ScramCredential:
    """No password matches it."""
    name = HASHES[mechanism]
    seed = f"{mechanism}\0{user}".encode()
    form = forms.at(int.from_bytes(hmac.digest(secret, b"form\0" + seed, "sha256")[:8]))
    stored_key, server_key = (hmac.digest(secret, kind + seed, name) for kind in (b"stored\0", b"server\0"))
    return ScramCredential(_salt(secret, seed, form), stored_key, server_key, form.iterations)


def _salt(secret: bytes, seed: bytes, form: CredentialForm) -> bytes:
    first = hmac.digest(secret, b"salt\0" + seed, "sha256")
    if form.salt_bytes == _BY_KAFKA:
        return salt_text(int.from_bytes(first) >> (256 - SALT_BITS))
    stream = first
    # More digests for salts longer than one.
    while len(stream) < form.salt_bytes:
        stream += hmac.digest(secret, b"salt\0" + len(stream).to_bytes(4) + seed, "sha256")
    letters = _ALPHABETS[form.alphabet]
    return bytes(letters[byte % len(letters)] for byte in stream[: form.salt_bytes])


def credential_for(
    secret: bytes, mechanism: str, user: str, configs: Mapping[str, str], forms: CredentialForms
) -> ScramCredential:
    """The credential for a login of ``user`` with ``configs``: the user's own, or a fake one."""
    # Always computed, so that the time does not reveal whether the user exists.
    stranger = fake_credential(secret, mechanism, user, forms)
    text = stranger.text()
    try:
        return read_credential(mechanism, configs.get(mechanism, text))
    except DamagedCredential:
        return stranger


def forms_of_users(configs: Iterable[Mapping[str, str]]) -> Mapping[str, CredentialForms]:
    """The forms of valid credentials by mechanism."""
    forms: dict[str, list[CredentialForm]] = {mechanism: [] for mechanism in HASHES}
    for user_configs in configs:
        for mechanism, of_mechanism in forms.items():
            text = user_configs.get(mechanism)
            if text is not None:
                try:
                    of_mechanism.append(form_of(read_credential(mechanism, text)))
                except DamagedCredential:
                    continue  # no login can succeed with it
    return {mechanism: CredentialForms(of_mechanism) for mechanism, of_mechanism in forms.items()}
