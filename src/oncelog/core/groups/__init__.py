"""One partition of ``__consumer_offsets`` as a pure machine: classic consumer groups and committed offsets.

``shard.GroupShard`` is the only entry; ``states.py`` has the transition table, ``group.py`` the invariants,
``docs/internals/groups.md`` the explanation.
"""
