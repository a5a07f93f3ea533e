"""Values from files and the environment (KIP-297): resolved, or refused without a word of what was read."""

from __future__ import annotations

import pytest

from oncelog.node.listeners.broker_settings import ConfigError
from oncelog.runtime.security.config_providers import MAX_BYTES, resolve_references

PACKAGE = "org.apache.kafka.common.config.provider"
KEY = "listener.name.out.plain.sasl.jaas.config"
PROVIDERS = {
    "config.providers": "file, env,dir",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
}


def resolved(text, **more):
    return resolve_references({**PROVIDERS, KEY: text, **more})


def test_references_are_replaced_and_the_providers_own_keys_are_gone(monkeypatch, tmp_path):
    monkeypatch.setenv("ONCELOG_TEST_SECRET", "from env")
    (tmp_path / "secrets.properties").write_text("alice=from file\n")
    (tmp_path / "bob").write_text("from dir")
    of_file, of_directory = f"${{file:{tmp_path}/secrets.properties:alice}}", f"${{dir:{tmp_path}:bob}}"
    assert resolved(f'a="{of_file}" b="${{env:ONCELOG_TEST_SECRET}}" c="{of_directory}"') == {
        "config.providers": "file, env,dir",
        KEY: 'a="from file" b="from env" c="from dir"',
    }


def test_what_was_read_is_not_resolved_again(monkeypatch):
    monkeypatch.setenv("ONCELOG_TEST_SECRET", "${env:HOME}")
    assert resolved("${env:ONCELOG_TEST_SECRET}")[KEY] == "${env:HOME}"


@pytest.mark.parametrize(
    "text",
    [
        "${vault:path:key}",
        "${env:ONCELOG_NO_SUCH_VARIABLE}",
        "${file:/no/such/file:key}",
        "${file:key}",
        "${dir:/etc:../shadow}",
        "${dir:/etc:..}",
    ],
)
def test_what_cannot_be_resolved_is_refused_with_the_key_that_asks(text):
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.plain"):
        resolved(text)


def test_a_file_without_the_key_or_too_large_is_refused_and_not_quoted(tmp_path):
    path = tmp_path / "secrets.properties"
    for content in (b"bob=hidden", b"alice=hidden" + b"x" * MAX_BYTES, b"alice=hidden\xff"):
        path.write_bytes(content)
        with pytest.raises(ConfigError) as error:
            resolved(f"${{file:{path}:alice}}")
        assert "hidden" not in str(error.value)


def test_what_a_provider_may_read_is_bounded(monkeypatch, tmp_path):
    monkeypatch.setenv("ONCELOG_TEST_SECRET", "x")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("good")
    (tmp_path / "b").write_text("bad")
    paths = {"config.providers.dir.param.allowed.paths": str(tmp_path / "in")}
    assert resolved(f"${{dir:{tmp_path}/in:a}}", **paths)[KEY] == "good"
    for path in (str(tmp_path), f"{tmp_path}/in/.."):
        with pytest.raises(ConfigError, match="does not allow"):
            resolved(f"${{dir:{path}:b}}", **paths)
    names = {"config.providers.env.param.allowlist.pattern": "ONCELOG_.*"}
    assert resolved("${env:ONCELOG_TEST_SECRET}", **names)[KEY] == "x"
    with pytest.raises(ConfigError, match="does not allow"):
        resolved("${env:PATH}", **names)


def test_an_unknown_provider_is_refused_by_its_class():
    with pytest.raises(ConfigError, match=r"config\.providers\.vault\.class"):
        resolve_references({"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"})


def test_texts_that_are_no_secrets_stay_as_they_are_without_providers():
    values = {"broker.rack": "${zone:a}", "listener.name.x.y": "$1 ${} ${a}"}
    assert resolve_references(values) == values
    with pytest.raises(ConfigError, match=r"config\.providers"):
        resolve_references({KEY: "${env:SECRET}"})
