"""Changes of what brokers, topics, groups, users, client ids and addresses set, and of access control lists."""
