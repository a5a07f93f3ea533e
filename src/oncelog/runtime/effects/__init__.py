"""Carries out a node's effects on an asyncio loop, and turns their completions into events."""
