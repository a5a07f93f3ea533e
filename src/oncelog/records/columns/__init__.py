"""Record batches (format v2, KIP-98) → Arrow columns, in numpy and pyarrow, without a Python step per record.

The steps: ``batches`` (``plain_batches`` for the usual fetch) selects batches by their headers and lays their
uncompressed records out in one buffer; ``record_starts`` finds the position of each record; ``fields`` reads offsets,
timestamps and byte ranges of all records at once; ``arrow_arrays`` copies each column.

Everything is checked before it is used: counts are bounded by bytes before an allocation, every chain of records ends
exactly where its batch ends, every field ends inside its record. Any violation raises ``CorruptBatch``, and nothing
else does.

Needs the ``spark`` extra (numpy, pyarrow), so the broker must never import it.
"""
