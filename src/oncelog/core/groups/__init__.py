"""One partition of ``__consumer_offsets`` as a pure machine: groups, classic and of KIP-848, and their offsets.

``shard.GroupShard`` is the only entry; ``states.py`` has the transition table, ``group.py`` the invariants,
``docs/internals/groups.md`` the explanation.
"""
