"""Configs of topics, brokers and groups, and client quotas."""
