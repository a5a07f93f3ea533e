"""Tells brokers whose processes stand still from others."""
