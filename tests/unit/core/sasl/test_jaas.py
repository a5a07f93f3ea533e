"""JAAS lines, as Apache Kafka's JaasConfig reads them."""

from __future__ import annotations

import pytest

from oncelog.core.sasl.jaas import JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{PLAIN}\n  REQUIRED\n  user_a='b'\n ;\n", {"user_a": "b"}),
        (f'{PLAIN} required a = "x=y;z" ;', {"a": "x=y;z"}),
        (f'{PLAIN} required a="say \\"hi\\" \\\\ \\t\\101\\477";', {"a": 'say "hi" \\ \tA\'7'}),
        (f"{PLAIN} required a=true b=w-o_r.d$;", {"a": "true", "b": "w-o_r.d$"}),
        (f'{PLAIN} required // who\n a="//x" /* why\n */ b="/*y*/"; // end', {"a": "//x", "b": "/*y*/"}),
        (f"{PLAIN} required a='ü' ;", {"a": "ü"}),
    ],
)
def test_lines_that_are_read(text, options):
    module = parse_jaas(text)
    assert (module.name, module.short_name, dict(module.options)) == (PLAIN, "PlainLoginModule", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f"{PLAIN} perhaps;",
        f'{PLAIN} required secretname "secretvalue";',
        f"{PLAIN} required secretname=;",
        f'{PLAIN} required secretname="secretvalue',
        f'{PLAIN} required secretname="secret\nvalue";',
        f"{PLAIN} required secretname=123;",
        f"{PLAIN} required; {PLAIN} required;",
        f'"{PLAIN}" required;',
    ],
)
def test_lines_that_are_refused_are_not_quoted(text):
    with pytest.raises(JaasError) as error:
        parse_jaas(text)
    assert "secret" not in str(error.value)


def test_options_are_in_no_text():
    assert "hidden" not in repr(parse_jaas(f'{PLAIN} required user_a="hidden";'))
