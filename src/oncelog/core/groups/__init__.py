"""One partition of ``__consumer_offsets`` as a pure machine: groups, classic and of KIP-848, and their offsets.

``shard.GroupShard`` is the only entry. See docs/internals/groups.md.
"""
