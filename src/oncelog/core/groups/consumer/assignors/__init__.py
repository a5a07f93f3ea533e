"""Server-side assignors of consumer groups (KIP-848): each maps a group's subscriptions to a target assignment."""
