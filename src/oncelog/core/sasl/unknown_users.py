"""Credentials that answer the login of a name that has none, so that it cannot be told from one that has.

Rules:
1. Salt and keys follow from the name, the mechanism and a secret of the cluster: they are the same each time and on
   every broker. No password fits them.
2. Iterations and the form of the salt are those of users with that mechanism: as large a part of all other names has a
   rare form as of the users. Tools differ in both: Apache Kafka's salt is a number in base 36, librdkafka's 64 bytes.
3. A change of one user changes the form of few other names, because the forms stand in one order and each name has a
   fixed place among them.

With fewer than a handful of users a guess remains: the form of a name that changes with somebody else's password is not
a user's own.
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
"""Bytes that salts are made of, the fewest first."""
_BASE_36: Final = 1
_BY_KAFKA: Final = 0
"""Stands for the sizes that a number of ``SALT_BITS`` bits has in base 36."""
_KAFKA_SIZES: Final = range(20, 27)
_PLACES: Final = 1 << 64


class CredentialForm(NamedTuple):
    """The iterations of a credential, and the make of its salt: alphabet and length."""

    iterations: int
    alphabet: int
    salt_bytes: int


_DEFAULT: Final = CredentialForm(MIN_ITERATIONS, _BASE_36, _BY_KAFKA)


def form_of(credential: ScramCredential) -> CredentialForm:
    """The form of a user's credential."""
    salt = credential.salt
    alphabet = next(number for number, letters in enumerate(_ALPHABETS) if not salt.translate(None, letters))
    if alphabet <= _BASE_36 and len(salt) in _KAFKA_SIZES:
        return CredentialForm(credential.iterations, _BASE_36, _BY_KAFKA)
    return CredentialForm(credential.iterations, alphabet, len(salt))


class CredentialForms:
    """The forms of the users of one mechanism, each as often as it occurs."""

    def __init__(self, forms: Iterable[CredentialForm] = ()) -> None:
        counts = sorted(Counter(forms).items()) or [(_DEFAULT, 1)]
        self._forms = [form for form, _ in counts]
        self._ends = list(accumulate(count for _, count in counts))

    def at(self, place: int) -> CredentialForm:
        """The form of a name, by its place in [0, 2**64)."""
        return self._forms[bisect_right(self._ends, place * self._ends[-1] // _PLACES)]


def credential_of_stranger(secret: bytes, mechanism: str, user: str, forms: CredentialForms) -> ScramCredential:
    """The credential that a name without one is answered with; no password fits it."""
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
    while len(stream) < form.salt_bytes:
        stream += hmac.digest(secret, b"salt\0" + len(stream).to_bytes(4) + seed, "sha256")
    letters = _ALPHABETS[form.alphabet]
    return bytes(letters[byte % len(letters)] for byte in stream[: form.salt_bytes])


def credential_for(
    secret: bytes, mechanism: str, user: str, configs: Mapping[str, str], forms: CredentialForms
) -> ScramCredential:
    """The credential that answers a login of ``user``, who has set ``configs``: the user's own, or one that no password
    fits. Both are made, so that the time does not tell which it is."""
    stranger = credential_of_stranger(secret, mechanism, user, forms)
    text = stranger.text()
    try:
        return read_credential(mechanism, configs.get(mechanism, text))
    except DamagedCredential:
        return stranger


def forms_of_users(configs: Iterable[Mapping[str, str]]) -> Mapping[str, CredentialForms]:
    """The forms of users' credentials by mechanism, of those that can log in."""
    forms: dict[str, list[CredentialForm]] = {mechanism: [] for mechanism in HASHES}
    for user_configs in configs:
        for mechanism, of_mechanism in forms.items():
            text = user_configs.get(mechanism)
            if text is not None:
                try:
                    of_mechanism.append(form_of(read_credential(mechanism, text)))
                except DamagedCredential:
                    continue  # nobody logs in with it
    return {mechanism: CredentialForms(of_mechanism) for mechanism, of_mechanism in forms.items()}
