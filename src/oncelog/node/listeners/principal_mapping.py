"""``ssl.principal.mapping.rules``: maps the subject of a client's certificate to its principal.

The first matching rule decides: ``RULE:pattern/replacement/``, optionally with ``L`` or ``U`` for lower or upper case,
or ``DEFAULT``, the name as it is. Grammar and replacement are Apache Kafka's. Its patterns are Java's; Python's ``re``
reads them alike except for rarities such as possessive quantifiers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.core.configs.kinds import ConfigError

KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = rf"\s*({_RULE})\s*(,\s*|$)"
_NAMED_GROUP: Final = r"\(\?<(?=[A-Za-z])"


class NoRuleApplies(Exception):
    """No rule maps the name: the client is refused."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda match: _replaced(self.replacement, match), name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class PrincipalMapping:
    """A listener's mapping rules. Raises ConfigError for invalid ones."""

    def __init__(self, rules: str) -> None:
        self._rules = _parse(rules)

    def principal(self, name: str) -> str:
        """The principal ``User:…`` for a certificate's name. Raises NoRuleApplies."""
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return f"User:{user}"
        raise NoRuleApplies(f"no rule of {KEY} applies to {name}")


def _parse(text: str) -> Sequence[_Rule]:
    rules = []
    for match in re.finditer(_SPLITTER, text.strip()):
        rule = match[1]
        parsed = re.match(_RULE, rule)
        if parsed is None or parsed.end() != len(rule):
            unmatched = rule[parsed.end() :] if parsed is not None else rule
            raise ConfigError.of_value(KEY, text, f"Invalid rule: `{rule}`, unmatched substring: `{unmatched}`")
        if parsed[1] is not None:
            rules.append(_Rule(None))
        elif parsed[2] is not None:
            rules.append(_Rule(_compiled(parsed[2], text), parsed[3], parsed[4]))
    return rules


def _compiled(pattern: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(re.sub(_NAMED_GROUP, "(?P<", pattern), re.ASCII)
    except re.error as error:
        raise ConfigError.of_value(KEY, text, f"{pattern} is not a regular expression: {error}") from None


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """Fill in a replacement as Java's ``replaceAll`` does: ``$1``, ``${name}``, and backslash escapes. References to
    groups that the pattern lacks stay as they are."""
    result: list[str] = []
    position = 0
    while position < len(replacement):
        character = replacement[position]
        if character == "\\" and position + 1 < len(replacement):
            result.append(replacement[position + 1])
            position += 2
            continue
        group = re.match(r"\$(?:(\d+)|\{([A-Za-z][A-Za-z0-9]*)\})", replacement[position:])
        if group is None:
            result.append(character)
            position += 1
        elif group[2] is not None:
            result.append(match[group[2]] or "" if group[2] in match.re.groupindex else group[0])
            position += group.end()
        else:
            number, taken = _group_number(group[1], match.re.groups)
            result.append("$" + group[1] if number is None else match[number] or "")
            position += 1 + (len(group[1]) if number is None else taken)
    return "".join(result)


def _group_number(digits: str, groups: int) -> tuple[int | None, int]:
    """The group that leading digits name, and the number of digits used: as many as give an existing group."""
    number, taken = int(digits[0]), 1
    while taken < len(digits) and number * 10 + int(digits[taken]) <= groups:
        number = number * 10 + int(digits[taken])
        taken += 1
    return (number, taken) if number <= groups else (None, 0)
