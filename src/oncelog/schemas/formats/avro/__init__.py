"""Avro schemas, by the Avro 1.12 specification."""
