"""Engines that run the audit's pipeline: in this process, or on Spark."""
