"""Rules of JSON Schema, each with the name that Confluent's registry reports.

A new schema is compatible if each instance of the old one is valid under it, once absent properties that have a default
have been filled in, as readers do. Annotations and ``format`` restrict nothing.
"""

from __future__ import annotations

from typing import Final

from oncelog.schemas.compatibility.rules import Rule

_VALIDATION: Final = "JSON Schema 2020-12 Validation"
_CORE: Final = "JSON Schema 2020-12 Core"
_KEYWORD: Final = "The keyword at path '{path}' in the {reader} schema is not in the {writer} schema"
_MORE: Final = "The value at path '{path}' in the {reader} schema is more than in the {writer} schema"
_LESS: Final = "The value at path '{path}' in the {reader} schema is less than in the {writer} schema"
_DIFFERENT: Final = "The value at path '{path}' in the {reader} schema is not the one in the {writer} schema"
_TYPE: Final = "The type at path '{path}' in the {reader} schema excludes values of the {writer} schema"
_FEWER: Final = "The alternatives at path '{path}' in the {reader} schema are fewer than in the {writer} schema"
_OPEN: Final = "The {writer} schema allows any value at path '{path}', which the {reader} schema restricts"
_CLOSED: Final = "The {reader} schema allows no value at path '{path}', which the {writer} schema does"
_COVERED: Final = "The {reader} schema allows fewer values at path '{path}' than the {writer} schema"
_COMBINED: Final = "No alternative at path '{path}' in the {reader} schema includes all values of the {writer} schema"

_ROWS: Final = (
    ("TYPE_CHANGED", f"{_VALIDATION} 6.1.1 type", _TYPE),
    ("TYPE_NARROWED", f"{_VALIDATION} 6.1.1 type", _TYPE),
    ("ENUM_ARRAY_NARROWED", f"{_VALIDATION} 6.1.2 enum", _FEWER),
    ("ENUM_ARRAY_CHANGED", f"{_VALIDATION} 6.1.2 enum, 6.1.3 const", _DIFFERENT),
    ("MULTIPLE_OF_ADDED", f"{_VALIDATION} 6.2.1 multipleOf", _KEYWORD),
    ("MULTIPLE_OF_EXPANDED", f"{_VALIDATION} 6.2.1 multipleOf", _MORE),
    ("MULTIPLE_OF_CHANGED", f"{_VALIDATION} 6.2.1 multipleOf", _DIFFERENT),
    ("MAXIMUM_ADDED", f"{_VALIDATION} 6.2.2 maximum", _KEYWORD),
    ("MAXIMUM_DECREASED", f"{_VALIDATION} 6.2.2 maximum", _LESS),
    ("EXCLUSIVE_MAXIMUM_ADDED", f"{_VALIDATION} 6.2.3 exclusiveMaximum", _KEYWORD),
    ("EXCLUSIVE_MAXIMUM_DECREASED", f"{_VALIDATION} 6.2.3 exclusiveMaximum", _LESS),
    ("MINIMUM_ADDED", f"{_VALIDATION} 6.2.4 minimum", _KEYWORD),
    ("MINIMUM_INCREASED", f"{_VALIDATION} 6.2.4 minimum", _MORE),
    ("EXCLUSIVE_MINIMUM_ADDED", f"{_VALIDATION} 6.2.5 exclusiveMinimum", _KEYWORD),
    ("EXCLUSIVE_MINIMUM_INCREASED", f"{_VALIDATION} 6.2.5 exclusiveMinimum", _MORE),
    ("MAX_LENGTH_ADDED", f"{_VALIDATION} 6.3.1 maxLength", _KEYWORD),
    ("MAX_LENGTH_DECREASED", f"{_VALIDATION} 6.3.1 maxLength", _LESS),
    ("MIN_LENGTH_ADDED", f"{_VALIDATION} 6.3.2 minLength", _KEYWORD),
    ("MIN_LENGTH_INCREASED", f"{_VALIDATION} 6.3.2 minLength", _MORE),
    ("PATTERN_ADDED", f"{_VALIDATION} 6.3.3 pattern", _KEYWORD),
    ("PATTERN_CHANGED", f"{_VALIDATION} 6.3.3 pattern: different ones are never proven to match alike", _DIFFERENT),
    ("MAX_ITEMS_ADDED", f"{_VALIDATION} 6.4.1 maxItems", _KEYWORD),
    ("MAX_ITEMS_DECREASED", f"{_VALIDATION} 6.4.1 maxItems", _LESS),
    ("MIN_ITEMS_ADDED", f"{_VALIDATION} 6.4.2 minItems", _KEYWORD),
    ("MIN_ITEMS_INCREASED", f"{_VALIDATION} 6.4.2 minItems", _MORE),
    ("UNIQUE_ITEMS_ADDED", f"{_VALIDATION} 6.4.3 uniqueItems", _KEYWORD),
    ("MAX_CONTAINS_ADDED", f"{_VALIDATION} 6.4.4 maxContains", _KEYWORD),
    ("MIN_CONTAINS_ADDED", f"{_VALIDATION} 6.4.5 minContains, {_CORE} 10.3.1.3 contains", _KEYWORD),
    ("MAX_PROPERTIES_ADDED", f"{_VALIDATION} 6.5.1 maxProperties", _KEYWORD),
    ("MAX_PROPERTIES_DECREASED", f"{_VALIDATION} 6.5.1 maxProperties", _LESS),
    ("MIN_PROPERTIES_ADDED", f"{_VALIDATION} 6.5.2 minProperties", _KEYWORD),
    ("MIN_PROPERTIES_INCREASED", f"{_VALIDATION} 6.5.2 minProperties", _MORE),
    ("REQUIRED_ATTRIBUTE_ADDED", f"{_VALIDATION} 6.5.3 required, of a property without a valid default", _KEYWORD),
    ("DEPENDENCY_ARRAY_ADDED", f"{_VALIDATION} 6.5.4 dependentRequired", _KEYWORD),
    ("DEPENDENCY_ARRAY_EXTENDED", f"{_VALIDATION} 6.5.4 dependentRequired", _MORE),
    ("DEPENDENCY_SCHEMA_ADDED", f"{_CORE} 10.2.2.4 dependentSchemas", _KEYWORD),
    ("PROPERTY_NAMES_CHANGED", f"{_CORE} 10.3.2.4 propertyNames", _DIFFERENT),
    ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", f"{_CORE} 10.3.2.1 properties: the old schema left it open", _OPEN),
    ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"{_CORE} 10.3.2.3 additionalProperties", _CLOSED),
    ("PROPERTY_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", f"{_CORE} 10.3.2.2, 10.3.2.3", _COVERED),
    ("ADDITIONAL_PROPERTIES_REMOVED", f"{_CORE} 10.3.2.3 additionalProperties", _CLOSED),
    ("ADDITIONAL_PROPERTIES_NARROWED", f"{_CORE} 10.3.2.3 additionalProperties", _COVERED),
    ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", f"{_CORE} 10.3.1.1 prefixItems: the old schema left it open", _OPEN),
    ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"{_CORE} 10.3.1.2 items", _CLOSED),
    ("ADDITIONAL_ITEMS_REMOVED", f"{_CORE} 10.3.1.2 items", _CLOSED),
    ("ADDITIONAL_ITEMS_NARROWED", f"{_CORE} 10.3.1.2 items", _COVERED),
    ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", f"{_CORE} 10.2.1.2 anyOf, 10.2.1.3 oneOf (a value matches one)", _COMBINED),
    ("NOT_TYPE_EXTENDED", f"{_CORE} 10.2.1.4 not", _COVERED),
    ("CONDITION_CHANGED", f"{_CORE} 10.2.2.1 if, then, else", _DIFFERENT),
    ("DYNAMIC_REFERENCE_CHANGED", f"{_CORE} 8.2.3.2 $dynamicRef: compared by its text", _DIFFERENT),
)
RULES: Final = {name: Rule(name, citation, text) for name, citation, text in _ROWS}
JSON_RULES: Final = tuple(RULES.values())
