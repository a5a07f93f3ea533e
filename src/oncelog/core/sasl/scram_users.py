"""The SCRAM credentials of users, among their configs in the cluster's metadata, and the one that answers a login."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog.core.sasl.scram_credentials import HASHES, DamagedCredential, ScramCredential, read_credential
from oncelog.core.sasl.scram_strangers import CredentialForm, CredentialForms, credential_of_stranger, form_of


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
