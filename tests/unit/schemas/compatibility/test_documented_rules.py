"""The page of schemas names the rules of compatibility, each with its source."""

from __future__ import annotations

import re
from pathlib import Path

from oncelog.schemas.compatibility.avro import AVRO_RULES
from oncelog.schemas.compatibility.json_rules import JSON_RULES
from oncelog.schemas.compatibility.protobuf import PROTOBUF_RULES

PAGE = Path(__file__).parents[4] / "docs" / "schemas.md"


def test_the_page_has_each_rule_and_its_source() -> None:
    section = PAGE.read_text().partition("## Compatibility")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (`[A-Z_`, ]+`) \| (.+) \|$", section, re.MULTILINE))
    sources = {name.strip("` "): source for names, source in rows.items() for name in names.split(",")}
    rules = {rule.name: rule.citation for rule in (*AVRO_RULES, *PROTOBUF_RULES, *JSON_RULES)}
    levels = {"FULL", "FORWARD", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE", "NONE"}
    assert sources.keys() - levels == rules.keys()
    shortened = {name: source for name, source in sources.items() if name in rules and source not in rules[name]}
    assert not {name for name in shortened if "Core" not in rules[name]}
