"""Schemas of keys and values: Confluent's wire format, the three formats, registries, and how values are decoded."""
