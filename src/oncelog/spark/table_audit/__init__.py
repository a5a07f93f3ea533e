"""Audits Iceberg and Delta tables that were loaded from topics: their commits, their files, their rows."""
