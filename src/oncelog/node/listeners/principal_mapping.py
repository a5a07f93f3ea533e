"""``ssl.principal.mapping.rules``: from the name in a client's certificate to its principal.

Rules are tried in order, the first that matches decides: ``RULE:pattern/replacement/`` (with ``L`` or ``U`` behind: in
small letters, or capitals) or ``DEFAULT``, the name as it is. Grammar and replacement are Apache Kafka's, whose
patterns are Java's: they are compiled as Python's, which read the same but for possessive classes and other rarities.
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
    """No rule has a principal for a name: its client is not let in."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
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
    """The rules of a listener. Raises ConfigError for those that are none."""

    def __init__(self, rules: str) -> None:
        self._rules = _parse(rules)

    def principal(self, name: str) -> str:
        """The principal of a certificate's name, ``User:…``. Raises NoRuleApplies."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return f"User:{found}"
        raise NoRuleApplies(f"no rule of {KEY} applies to {name}")


def _parse(text: str) -> Sequence[_Rule]:
    rules = []
    for found in re.finditer(_SPLITTER, text.strip()):
        rule = found[1]
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
    """A replacement as Java's ``replaceAll`` fills it in: ``$1``, ``${name}``, and a backslash before what stands for
    itself. A group that the pattern does not have stands for itself, too."""
    result: list[str] = []
    position = 0
    while position < len(replacement):
        letter = replacement[position]
        if letter == "\\" and position + 1 < len(replacement):
            result.append(replacement[position + 1])
            position += 2
            continue
        group = re.match(r"\$(?:(\d+)|\{([A-Za-z][A-Za-z0-9]*)\})", replacement[position:])
        if group is None:
            result.append(letter)
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
    """The group that digits name, and how many of them do: as many as there is a group for."""
    number, taken = int(digits[0]), 1
    while taken < len(digits) and number * 10 + int(digits[taken]) <= groups:
        number = number * 10 + int(digits[taken])
        taken += 1
    return (number, taken) if number <= groups else (None, 0)
