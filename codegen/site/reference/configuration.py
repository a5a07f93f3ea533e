"""The reference of configuration keys, from the tables that the broker reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from codegen.site.reference.markdown import code, of_html
from oncelog.core.configs import kafka_documentation
from oncelog.core.configs.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, documentation_of, has_no_effect
from oncelog.core.configs.kinds import ConfigKey, Update
from oncelog.core.configs.own_keys import OWN_KEYS

_INTRODUCTION: Final = """# Configuration keys

The keys are those of Apache Kafka 4.4.0, with its defaults and texts, and oncelog's own. `oncelog serve` reads them
from `--config FILE` and from `-o KEY=VALUE`. A key that changes "cluster-wide" or "per-broker" can be set while the
broker runs, by `kafka-configs` or any client. Defaults are texts of a properties file; a key without one is not set."""


def page() -> str:
    """The page of all keys that have an effect, and the names of the others."""
    own = {key.name for key in OWN_KEYS}
    broker = [key for key in BROKER_KEYS.values() if key.name not in own]
    idle = sorted(name for name in BROKER_KEYS if has_no_effect(name))
    return "\n\n".join(
        [
            _INTRODUCTION,
            "## oncelog's own keys",
            _list(OWN_KEYS, {}),
            "## Keys of brokers",
            _list(broker, kafka_documentation.BROKER),
            "## Keys of topics",
            _list(TOPIC_KEYS.values(), kafka_documentation.TOPIC),
            "## Keys of groups",
            _list(GROUP_KEYS.values(), kafka_documentation.GROUP),
            "## Keys without effect",
            "They are checked, kept and described for Apache Kafka's files and tools:",
            ", ".join(map(code, idle)) + ".",
        ]
    )


def _list(keys: Iterable[ConfigKey], texts: Mapping[str, str]) -> str:
    shown = [key for key in keys if not has_no_effect(key.name) and key.replaced_by is None]
    return "\n".join(_line(key, texts) for key in sorted(shown, key=lambda key: key.name))


def _line(key: ConfigKey, texts: Mapping[str, str]) -> str:
    facts = [key.type.name.lower()]
    if key.default is not None:
        facts.append(f"default {code(key.default) or 'empty'}")
    if key.update is not Update.READ_ONLY:
        facts.append(key.update.value)
    text = " ".join(of_html(documentation_of(key, texts) or "").split())
    return f"- **{code(key.name)}** ({', '.join(facts)}): {text}"
