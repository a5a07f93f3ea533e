"""A user of oncelog beside each PySpark, step by step: ``python -m tests.spark.versions.acceptance``."""
