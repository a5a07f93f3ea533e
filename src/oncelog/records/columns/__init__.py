"""Record batches (format v2, KIP-98) → Arrow columns, in numpy and pyarrow, without a Python step per record.

How a fetched buffer becomes columns, one module an idea:

1. ``batches``: a Python loop over batch *headers* decides which batches count (complete, not control, not aborted,
   not entirely outside the wanted offsets) and lays their uncompressed records in one buffer. ``plain_batches`` does so
   for all batches of the usual fetch at once.
2. ``record_starts``: the position of each record. Record i+1 begins where record i ends, so this is the only sequential
   part; runs of equal records and many batches side by side make it a numpy step for many records.
3. ``fields``: offsets, timestamps and the byte ranges of keys and values, every record at once (``record_heads``,
   ``varint``).
4. ``arrow_arrays``: one C++ copy per column from byte ranges to an Arrow array.

The rule: nothing is trusted before it is checked. Counts are bounded by bytes before anything is allocated, every
chain of records ends exactly where its batch ends, every field ends inside its record. Whatever breaks one of these
raises ``CorruptBatch``; nothing else does.

Needs the ``spark`` extra (numpy, pyarrow), so the broker must never import it.
"""
