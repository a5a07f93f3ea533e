"""One partition of ``__share_group_state`` as a pure machine: the delivery state of share groups' partitions (KIP-932).

``shard.ShareStateShard`` is the only entry.
"""
