"""Configs of topics, brokers and groups, and the quotas of clients."""
