"""Tokens: what is believed, and everything that is not."""

from __future__ import annotations

import base64
import json

import pytest

from oncelog.core.sasl.exchange import InvalidToken, Login
from oncelog.core.sasl.tokens import ALGORITHMS, MAX_TOKEN_BYTES, SignedTokens, TokenRules

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
RULES = TokenRules("https://issuer", ("oncelog", "others"), clock_skew_s=30)
TWICE = b'{"alg":"none","alg":"RS256"}'
CLAIMS = {"iss": "https://issuer", "aud": "oncelog", "sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 100}


class TrustingKeySet:
    """Takes every signature that says it is good, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, bytes]] = []

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        self.asked.append((algorithm, key_id, signed))
        if signature != b"good":
            raise InvalidToken("its signature is wrong")


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def token(claims: object = CLAIMS, signature: bytes = b"good", **header: object) -> str:
    return f"{part({'alg': 'RS256', 'kid': 'k', **header})}.{part(claims)}.{part(signature)}"


def validated(tokens: SignedTokens, text: str) -> Login:
    """As the broker does it: the form, the signature, then what it covers."""
    check = tokens.begin(text)
    check.verify()
    return check.login(NOW_MS)


def validate(text: str, rules: TokenRules = RULES) -> Login:
    return validated(SignedTokens(rules, TrustingKeySet), text)


def changed(**changes: object) -> dict[str, object]:
    """The claims with some others, or (``None``) without."""
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


def test_a_good_token_names_its_subject_and_its_end():
    assert validate(token()) == Login("alice", (NOW_S + 100) * 1000)
    assert validate(token(typ="at+jwt")).user == "alice"
    assert validate(token(changed(aud=["x", "others"], nbf=NOW_S, scope=["a", "b"]))).user == "alice"


def test_claims_may_have_other_names():
    rules = TokenRules("https://issuer", ("oncelog",), subject_claim="azp", scope_claim="scp")
    assert validate(token(changed(azp="service", scope=7)), rules).user == "service"


def test_a_claim_that_is_not_verified_may_be_anything():
    text = token(changed(iss="anybody", aud=7))
    with pytest.raises(InvalidToken, match="issuer"):
        validate(text, TokenRules("https://issuer", ()))
    with pytest.raises(InvalidToken, match="audience"):
        validate(text, TokenRules(None, ("oncelog",)))
    assert validate(text, TokenRules(None, ())).user == "alice"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_accepted_algorithms_go_to_the_key_set(algorithm):
    keys = TrustingKeySet()
    text = token(alg=algorithm)
    validated(SignedTokens(RULES, lambda: keys), text)
    assert keys.asked == [(algorithm, "k", text.rpartition(".")[0].encode())]


@pytest.mark.parametrize("algorithm", ["none", "None", "", None, "HS256", "HS512", "RS1", "rs256", "EdDSA", ["RS256"]])
def test_cve_2026_33557_no_other_algorithm_is_taken(algorithm):
    """``none`` has no signature, and an HMAC would be one with the public key as its secret."""
    with pytest.raises(InvalidToken, match="algorithm"):
        validate(token(alg=algorithm))


def test_cve_2026_33557_the_signature_is_verified_before_a_claim_is_believed():
    with pytest.raises(InvalidToken, match="signature"):
        validate(token(signature=b"bad"))
    with pytest.raises(InvalidToken, match="signature"):
        validate(token(changed(exp=0), signature=b""))


def test_cve_2026_33557_an_unsigned_token_is_none():
    with pytest.raises(InvalidToken, match="three parts"):
        validate(f"{part({'alg': 'none'})}.{part(CLAIMS)}")


def test_cve_2026_110985_without_a_key_set_nothing_is_valid():
    with pytest.raises(InvalidToken, match="no key set"):
        validated(SignedTokens(RULES, lambda: None), token())


def test_cve_2025_27817_the_token_names_no_place_of_keys():
    """``jku``, ``x5u`` and keys in the header are passed over: the key set is asked for the key's id, and no more."""
    keys = TrustingKeySet()
    text = token(jku="https://attacker/keys", x5u="https://attacker/cert", jwk={"kty": "RSA"}, kid="file:///etc/passwd")
    validated(SignedTokens(RULES, lambda: keys), text)
    assert [key_id for _, key_id, _ in keys.asked] == ["file:///etc/passwd"]


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": None},
        {"iss": "https://issuer/"},
        {"iss": ["https://issuer"]},
        {"aud": None},
        {"aud": "another"},
        {"aud": []},
        {"aud": [["oncelog"]]},
        {"aud": {"oncelog": 1}},
        {"exp": None},
        {"exp": NOW_S - 30},
        {"exp": str(NOW_S + 100)},
        {"exp": True},
        {"exp": 1e300},
        {"exp": -1},
        {"iat": None},
        {"iat": NOW_S + 31},
        {"iat": "now"},
        {"exp": NOW_S - 20, "iat": NOW_S - 10},
        {"nbf": NOW_S + 31},
        {"nbf": "soon"},
        {"sub": None},
        {"sub": ""},
        {"sub": "  "},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "a" * 2000},
        {"scope": 7},
        {"scope": ["a", ""]},
        {"scope": ["a", "a"]},
    ],
)
def test_claims_that_are_missing_or_wrong_are_refused(changes):
    with pytest.raises(InvalidToken):
        validate(token(changed(**changes)))


@pytest.mark.parametrize("changes", [{"exp": NOW_S - 29}, {"iat": NOW_S + 30}, {"nbf": NOW_S + 30}])
def test_clocks_may_differ_by_the_skew(changes):
    assert validate(token(changed(**{"iat": NOW_S - 100, **changes}))).user == "alice"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        f"{part({'alg': 'RS256'})}.{part([])}.{part(b'good')}",
        f"{part({'alg': 'RS256'})}.{part(b'{')}.{part(b'good')}",
        f"{part({'alg': 'RS256'})}.{part(b'[' * 40000)}.{part(b'good')}",
        f"{part(TWICE)}.{part(CLAIMS)}.{part(b'good')}",
        f"{part({'alg': 'RS256'})}.{part({'exp': float('nan')})}.{part(b'good')}",
        f"{part({'alg': 'RS256'})}=.{part(CLAIMS)}.{part(b'good')}",
        token(crit=["exp"]),
        token(b64=False),
        token(typ="JWE"),
        token(typ=7),
        token(kid=7),
        token(changed(pad="a" * MAX_TOKEN_BYTES)),
    ],
)
def test_what_is_no_token_is_refused(text):
    with pytest.raises(InvalidToken) as error:
        validate(text)
    assert "alice" not in str(error.value)
