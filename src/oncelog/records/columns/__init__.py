"""Record batches (format v2, KIP-98) → Arrow columns, in numpy and pyarrow, without a Python step per record.

The steps from a fetched buffer to columns:

1. ``batches``: a Python loop over batch *headers* selects batches (complete, not control, not aborted, within the
requested offsets) and lays their uncompressed records out in one buffer. ``plain_batches`` does this for all batches of
the usual fetch at once.
2. ``record_starts``: the position of each record. Record i+1 begins where record i ends, so this is the only sequential
part; runs of equal records and many batches side by side make it a numpy step for many records.
3. ``fields``: offsets, timestamps and the byte ranges of keys and values, of all records at once (``record_heads``,
``varint``).
4. ``arrow_arrays``: one C++ copy per column from byte ranges to an Arrow array.

Everything is checked before it is used: counts are bounded by bytes before an allocation, every chain of records ends
exactly where its batch ends, every field ends inside its record. Any violation raises ``CorruptBatch``, and nothing
else does.

Needs the ``spark`` extra (numpy, pyarrow), so the broker must never import it.
"""
