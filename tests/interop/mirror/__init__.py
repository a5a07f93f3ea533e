"""Mirrors between brokers that run here."""
