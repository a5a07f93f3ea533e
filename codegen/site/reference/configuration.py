"""The reference of configuration keys, from the tables that the broker reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from codegen.site.reference.markdown import code, of_html, table
from oncelog.core.configs import kafka_documentation
from oncelog.core.configs.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, documentation_of, has_no_effect
from oncelog.core.configs.kinds import ConfigKey
from oncelog.core.configs.own_keys import OWN_KEYS

_HEAD: Final = ("key", "type", "default", "changes", "meaning")
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
            _table(OWN_KEYS, {}),
            "## Keys of brokers",
            _table(broker, kafka_documentation.BROKER),
            "## Keys of topics",
            _table(TOPIC_KEYS.values(), kafka_documentation.TOPIC),
            "## Keys of groups",
            _table(GROUP_KEYS.values(), kafka_documentation.GROUP),
            "## Keys without effect",
            "They are checked, kept and described for Apache Kafka's files and tools:",
            ", ".join(map(code, idle)) + ".",
        ]
    )


def _table(keys: Iterable[ConfigKey], texts: Mapping[str, str]) -> str:
    rows = [_row(key, texts) for key in keys if not has_no_effect(key.name) and key.replaced_by is None]
    return table(_HEAD, sorted(rows))


def _row(key: ConfigKey, texts: Mapping[str, str]) -> tuple[str, ...]:
    default = "" if key.default is None else code(key.default) or "empty"
    return (
        code(key.name),
        key.type.name.lower(),
        default,
        key.update.value,
        of_html(documentation_of(key, texts) or ""),
    )
