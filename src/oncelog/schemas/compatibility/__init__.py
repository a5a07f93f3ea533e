"""Compatibility of schemas: whether values written under one can be read under another, and the rules that decide."""
