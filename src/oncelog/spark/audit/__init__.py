"""The audit: raw log directories → the fate of every transaction, and whatever in them cannot be right.

How it goes, one module an idea:

1. ``layout``: which segments there are, and what is beside them; one task a segment.
2. ``headers``: a segment's batch headers as numpy columns; nothing in the bytes is believed.
3. ``segment_facts``: what a segment says, as rows: runs of batches, markers, index entries, snapshots, decisions
   (``runs``, ``index_checks``, ``internal_topics``). Small, whatever the segment's size.
4. ``history``: all rows of one producer on one partition, in order of offsets → its transactions there, and findings.
5. ``fates``: all of a producer's transactions beside what the coordinator's log says → torn, hanging; ``commits``:
   committed offsets beside where the logs end and what was aborted.
6. ``report``, ``page``: for people.

The rule: 2 to 5 are pure functions over streams of rows sorted in a stated order; ``pipeline`` puts them together for
an engine that maps and sorts: ``local`` does it in this process, ``distributed`` on Spark. Damage is a finding, never
an exception. Nothing is written to the directories that are read.

Needs the ``spark`` extra (numpy, pyarrow; pyspark for ``distributed`` only).
"""
