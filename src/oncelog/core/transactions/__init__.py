"""The transaction coordinator as one pure machine per ``__transaction_state`` partition; see ``shard``.

The rule: it imports neither other machines of ``core`` nor storage, handlers or node.
``docs/internals/transactions.md`` explains it and numbers its invariants.
"""
