"""``oncelog.initial.users``: the first users of a new cluster, who can log in to create others.

The format is ``NAME=MECHANISM:CREDENTIAL``, separated by semicolons; names are percent-encoded as in the tree. The text
contains credentials, not passwords, and no error quotes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from oncelog.core.sasl.scram_credentials import HASHES, DamagedCredential, ScramCredential, read_credential

_KEY: Final = "oncelog.initial.users"


class InitialUsersUnreadable(Exception):
    """The message says where."""


def initial_user_text(name: str, mechanism: str, credential: ScramCredential) -> str:
    return f"{quote(name, safe='')}={mechanism}:{credential.text()}"


def read_initial_users(text: str) -> Mapping[str, Mapping[str, str]]:
    """The credentials of each user by mechanism, as Apache Kafka stores them. Raises InitialUsersUnreadable."""
    users: dict[str, dict[str, str]] = {}
    for number, entry in enumerate(filter(None, map(str.strip, text.split(";"))), 1):
        name, _, rest = entry.partition("=")
        mechanism, _, credential = rest.partition(":")
        if not name or mechanism not in HASHES:
            raise _unreadable(number, f"expected NAME=MECHANISM:CREDENTIAL with {' or '.join(HASHES)}")
        try:
            # Read and written again, so that the tree gets Apache Kafka's form.
            text_of = read_credential(mechanism, credential).text()
        except DamagedCredential as error:
            raise _unreadable(number, str(error)) from None
        users.setdefault(unquote(name), {})[mechanism] = text_of
    return users


def _unreadable(number: int, reason: str) -> InitialUsersUnreadable:
    return InitialUsersUnreadable(f"{_KEY}: cannot read user {number}: {reason}")
