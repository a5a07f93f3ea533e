"""Principals of certificates: what Apache Kafka 4.3.1's own class answered, and Java's names of subjects."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from oncelog.core.configs.kinds import ConfigError
from oncelog.node.listeners.certificates import read_certificate
from oncelog.node.listeners.principal_mapping import NoRuleApplies, PrincipalMapping
from tests.certificates import Authority

A = x509.NameAttribute
TWO_TOGETHER = x509.RelativeDistinguishedName([A(NameOID.COMMON_NAME, "multi"), A(NameOID.USER_ID, "u1")])
SUBJECTS = [
    (
        [A(NameOID.COUNTRY_NAME, "DE"), A(NameOID.ORGANIZATION_NAME, "Acme, Inc."), A(NameOID.COMMON_NAME, "alice")],
        r"CN=alice,O=Acme\, Inc.,C=DE",
    ),
    ([A(NameOID.COMMON_NAME, " lead and trail ")], r"CN=\ lead and trail" + "\\ "),
    ([A(NameOID.COMMON_NAME, '#hash <a> "q" + ; \\ =x')], r"CN=\#hash \<a\> \"q\" \+ \; \\ \=x"),
    ([A(NameOID.COMMON_NAME, "Jürgen Ø 日本")], "CN=Jürgen Ø 日本"),
    (
        [A(NameOID.EMAIL_ADDRESS, "a@b.c"), A(NameOID.COMMON_NAME, "mail")],
        "CN=mail,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    ([TWO_TOGETHER, x509.RelativeDistinguishedName([A(NameOID.ORGANIZATION_NAME, "o")])], "O=o,CN=multi+UID=u1"),
    (
        [
            A(NameOID.DOMAIN_COMPONENT, "example"),
            A(NameOID.STREET_ADDRESS, "1 Road"),
            A(NameOID.STATE_OR_PROVINCE_NAME, "BY"),
            A(NameOID.LOCALITY_NAME, "M"),
            A(NameOID.ORGANIZATIONAL_UNIT_NAME, "ou"),
            A(NameOID.SERIAL_NUMBER, "77"),
            A(NameOID.TITLE, "Dr"),
        ],
        "2.5.4.12=#0c024472,2.5.4.5=#13023737,OU=ou,L=M,ST=BY,STREET=1 Road,DC=example",
    ),
    ([A(NameOID.COMMON_NAME, "plain", _type=_ASN1Type.PrintableString)], "CN=plain"),
    ([A(NameOID.COMMON_NAME, "a@b", _type=_ASN1Type.IA5String)], "CN=a@b"),
    ([A(NameOID.SERIAL_NUMBER, "ö", _type=_ASN1Type.T61String)], "2.5.4.5=#1402c3b6"),
    ([A(NameOID.COMMON_NAME, "a\x01b\tc * ' ( ) / : ? ~")], "CN=a\x01b\tc * ' ( ) / : ? ~"),
]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize(("attributes", "expected"), SUBJECTS)
def test_a_subject_is_written_as_java_writes_it(authority: Authority, attributes: list[A], expected: str) -> None:
    assert read_certificate(authority.named(x509.Name(attributes)).der).subject == expected


AMBIGUOUS = [
    ("慤浩", _ASN1Type.BMPString, "ASN.1 type 0x1e"),
    ("bmp", _ASN1Type.BMPString, "ASN.1 type 0x1e"),
    ("universal", _ASN1Type.UniversalString, "ASN.1 type 0x1c"),
    ("teletex", _ASN1Type.T61String, "ASN.1 type 0x14"),
    ("général", _ASN1Type.GeneralizedTime, "ASN.1 type 0x18"),
    ("12", _ASN1Type.NumericString, "ASN.1 type 0x12"),
    ("visible", _ASN1Type.VisibleString, "ASN.1 type 0x1a"),
    ("jürgen@example", _ASN1Type.IA5String, "is not ASCII"),
    ("alice\0.evil", _ASN1Type.UTF8String, "NUL"),
]


@pytest.mark.parametrize(("text", "kind", "reason"), AMBIGUOUS)
@pytest.mark.parametrize("attribute", [NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.DOMAIN_COMPONENT])
def test_a_subject_that_does_not_say_for_certain_what_it_is_has_no_name(
    authority: Authority, attribute: x509.ObjectIdentifier, text: str, kind: _ASN1Type, reason: str
) -> None:
    name = x509.Name([A(NameOID.COMMON_NAME, "alice"), A(attribute, text, _type=kind)])
    certificate = read_certificate(authority.named(name).der)
    assert certificate.not_after_s > certificate.not_before_s, "a broker reads the end of its own"
    with pytest.raises(ValueError, match=reason):
        _ = certificate.subject


@pytest.mark.parametrize(
    ("kind", "wrong", "reason"),
    [
        (_ASN1Type.UTF8String, b"\xff", "is not UTF-8"),
        (_ASN1Type.UTF8String, b"\xc0", "is not UTF-8"),
        (_ASN1Type.UTF8String, b"\x80", "is not UTF-8"),
        (_ASN1Type.PrintableString, b"\xfc", "is not ASCII"),
        (_ASN1Type.PrintableString, b"\0", "NUL"),
    ],
)
def test_a_subject_that_is_not_what_its_type_says_has_no_name(
    authority: Authority, kind: _ASN1Type, wrong: bytes, reason: str
) -> None:
    der = authority.named(x509.Name([A(NameOID.COMMON_NAME, "alice here", _type=kind)])).der
    with pytest.raises(ValueError, match=reason):
        _ = read_certificate(der.replace(b"alice here", b"alice" + wrong + b"here")).subject


def test_the_end_of_a_certificate_is_read(authority: Authority) -> None:
    identity = authority.client()
    certificate = read_certificate(identity.der)
    known = x509.load_der_x509_certificate(identity.der)
    assert certificate.not_after_s == int(known.not_valid_after_utc.timestamp())
    assert certificate.not_before_s == int(known.not_valid_before_utc.timestamp())


def test_what_is_cut_off_anywhere_is_no_certificate(authority: Authority) -> None:
    der = authority.client().der
    for size in range(0, len(der), 7):
        with pytest.raises(ValueError, match=r"not a certificate|substring|unpack"):
            _ = read_certificate(der[:size]).subject


SERVICE = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/"
MAPPED = [
    ("DEFAULT", "CN=alice,O=Acme", "CN=alice,O=Acme"),
    (SERVICE, "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
    (SERVICE + ",DEFAULT", "CN=kafka,OU=Others,O=x", "CN=kafka,OU=Others,O=x"),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2@$4/L , DEFAULT", "CN=Alice,OU=Dev,O=Acme", "alice@dev@$4"),
    ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=a,ou=b,dc=c,dc=d", "A@B"),
    ("RULE:^CN=(.*?)$/$12/", "CN=x", "x2"),
    ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "O=x,CN=BoB.1,C=D", "bob.1"),
    ("RULE:.*/x/", "abc", "xx"),
    (r"RULE:^CN=(\w+)\/y$/a\/$1/", "CN=q/y", "a/q"),
    ("RULE:^CN=(?<who>.*?),.*$/${who}-$0/", "CN=al,O=x", "al-CN=al,O=x"),
    (r"RULE:^CN=(.*?)\\, Inc.$/$1/", r"CN=Acme\, Inc.", "Acme"),
    ("RULE:^X$/y/L,RULE:^CN=A$/B/", "CN=A", "B"),
    (r"RULE:^(.*)$/\$1/", "CN=A", "$1"),
    ("DEFAULT,RULE:^CN=(.*?)$/$1/L", "CN=aB", "CN=aB"),
    ("RULE:^CN=((.)(.))$/$3$2$10/", "CN=aB", "BaaB0"),
]


@pytest.mark.parametrize(("rules", "name", "expected"), MAPPED)
def test_rules_name_the_principal_that_apache_kafkas_name(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapping(rules).principal(name) == f"User:{expected}"


@pytest.mark.parametrize("rules", [SERVICE, ""])
def test_a_name_to_which_no_rule_applies_has_no_principal(rules: str) -> None:
    with pytest.raises(NoRuleApplies, match=r"no rule of ssl.principal.mapping.rules applies to CN=kafka"):
        PrincipalMapping(rules).principal("CN=kafka,OU=Others,O=x")


@pytest.mark.parametrize(
    ("rules", "unmatched"),
    [
        ("RULE:", "RULE:"),
        ("NONSENSE", "NONSENSE"),
        ("RULE:^CN=(.*?)$/$1", "RULE:^CN=(.*?)$/$1"),
        ("RULE:^CN=(.*?)$/$1/LU", "U"),
        ("RULE:^CN=(.*?)$/$1/X", "X"),
    ],
)
def test_what_is_no_rule_is_refused_in_apache_kafkas_words(rules: str, unmatched: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalMapping(rules)
    assert f"Invalid rule: `{rules}`, unmatched substring: `{unmatched}`" in str(refused.value)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a regular expression"):
        PrincipalMapping("RULE:(/x/")
