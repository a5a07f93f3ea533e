"""Security of in-process brokers: certificates, users, access control lists and tokens. See ``security``."""
