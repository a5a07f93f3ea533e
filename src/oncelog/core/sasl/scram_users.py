"""The SCRAM credentials of users, among their configs in the cluster's metadata, and the one that answers a login."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.core.sasl.scram_credentials import (
    HASHES,
    DamagedCredential,
    ScramCredential,
    credential_of_nobody,
    read_credential,
    usual_iterations,
)

_ITERATIONS: Final = ",iterations="


def credential_for(
    secret: bytes, mechanism: str, user: str, configs: Mapping[str, str], iterations: int
) -> ScramCredential:
    """The credential that answers a login of ``user``, who has set ``configs``: the user's own, or one that no password
    fits. Both are made, so that the time does not tell which it is."""
    nobody = credential_of_nobody(secret, mechanism, user, iterations)
    text = nobody.text()
    try:
        return read_credential(mechanism, configs.get(mechanism, text))
    except DamagedCredential:
        return nobody


def iterations_shown(configs: Iterable[Mapping[str, str]]) -> Mapping[str, int]:
    """Iterations by mechanism that a name without a credential is answered with: those that most users have."""
    found: dict[str, list[int]] = {mechanism: [] for mechanism in HASHES}
    for each in configs:
        for mechanism, counts in found.items():
            _, _, digits = each.get(mechanism, "").rpartition(_ITERATIONS)
            if digits.isascii() and digits.isdecimal() and len(digits) < 6:
                counts.append(int(digits))
    return {mechanism: usual_iterations(counts) for mechanism, counts in found.items()}
