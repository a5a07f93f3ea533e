"""Metadata and rule sets of schemas: JSON that a registry keeps, merges and compares, and never carries out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Document = Mapping[str, Any]
CONFLUENT_VERSION: Final = "confluent:version"
_RULE_GROUPS: Final = ("migrationRules", "domainRules", "encodingRules")


class InvalidMetadata(ValueError):
    """Metadata or a rule set whose JSON does not have the form that clients read."""


def check_metadata(metadata: Document | None) -> None:
    """Raises InvalidMetadata."""
    if metadata is None:
        return
    tags, properties = metadata.get("tags") or {}, metadata.get("properties") or {}
    if not isinstance(tags, dict) or not all(_is_texts(value) for value in tags.values()):
        raise InvalidMetadata("metadata.tags has to map names to lists of text")
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise InvalidMetadata("metadata.properties has to map names to text")
    if not _is_texts(metadata.get("sensitive") or []):
        raise InvalidMetadata("metadata.sensitive has to be a list of text")


def check_rule_set(rule_set: Document | None) -> None:
    """Raises InvalidMetadata for rules that have no name or no type, or share a name."""
    names: set[str] = set()
    for group in _RULE_GROUPS:
        rules = (rule_set or {}).get(group) or []
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise InvalidMetadata(f"ruleSet.{group} has to be a list of objects")
        for rule in rules:
            name, kind = rule.get("name"), rule.get("type")
            if not isinstance(name, str) or not name:
                raise InvalidMetadata("a rule of the rule set has no name")
            if not isinstance(kind, str):
                raise InvalidMetadata(f"the rule '{name}' has no type")
            if name in names:
                raise InvalidMetadata(f"Found rule with duplicate name '{name}'")
            if not _is_texts(rule.get("tags") or []) or not isinstance(rule.get("params") or {}, dict):
                raise InvalidMetadata(f"rule '{name}' has tags that are no list of text, or params that are no object")
            names.add(name)


def merge_metadata(older: Document | None, newer: Document | None) -> Document | None:
    """Both; what ``newer`` has wins."""
    if older is None or newer is None:
        return newer if older is None else older
    merged: dict[str, Any] = {}
    for name in ("tags", "properties"):
        if values := {**(older.get(name) or {}), **(newer.get(name) or {})}:
            merged[name] = values
    if sensitive := sorted({*(older.get("sensitive") or ()), *(newer.get("sensitive") or ())}):
        merged["sensitive"] = sensitive
    return merged


def merge_rule_sets(older: Document | None, newer: Document | None) -> Document | None:
    """Both; a rule of ``newer`` replaces the one of the same name."""
    if older is None or newer is None:
        return newer if older is None else older
    merged: dict[str, Any] = {}
    for group in _RULE_GROUPS:
        rules = newer.get(group) or []
        names = {rule["name"] for rule in rules}
        if joined := [rule for rule in older.get(group) or [] if rule["name"] not in names] + rules:
            merged[group] = joined
    enable_at = newer.get("enableAt") or older.get("enableAt")
    return merged | ({"enableAt": enable_at} if enable_at else {})


def version_in(metadata: Document | None) -> str | None:
    """The version that metadata carries for clients that read schemas apart from the registry."""
    properties: Mapping[str, str] = (metadata or {}).get("properties") or {}
    return properties.get(CONFLUENT_VERSION)


def with_version(metadata: Document | None, version: int) -> Document:
    properties = {**((metadata or {}).get("properties") or {}), CONFLUENT_VERSION: str(version)}
    return {**(metadata or {}), "properties": properties}


def without_version(metadata: Document | None) -> Document | None:
    """None for metadata that has nothing else."""
    if version_in(metadata) is None:
        return metadata
    rest = {name: value for name, value in (metadata or {}).items() if value}
    properties = {name: value for name, value in rest["properties"].items() if name != CONFLUENT_VERSION}
    rest.pop("properties")
    return rest | ({"properties": properties} if properties else {}) or None


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
