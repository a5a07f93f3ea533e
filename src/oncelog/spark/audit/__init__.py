"""The audit: raw log directories → the fate of every transaction, and whatever in them cannot be right.

The steps, one module an idea:

1. ``directories``: which segments there are, and what is beside them; one task a segment (``audit_plan``).
2. ``segments.batch_headers``: a segment's batch headers as numpy columns; no byte is trusted.
3. ``segments.segment_facts``: what a segment says, as rows: runs of batches, markers, index entries, snapshots,
   decisions (``producer_runs``, ``index_checks``, ``internal_topics``). Small, whatever the segment's size.
4. ``producer_history``: all rows of one producer on one partition, in order of offsets → its transactions there, and
   findings; ``coordinator_decisions`` matches the markers among them with the coordinator's log.
5. ``fates``: all of a producer's transactions beside what the coordinator's log says → torn, hanging;
   ``committed_offsets``: beside where the logs end and what was aborted.
6. ``report``, ``html``: for people.

The rule: 2 to 5 are pure functions over streams of rows sorted in a stated order; ``pipeline`` puts them together for
an engine that maps and sorts: ``engines.local_engine`` in this process, ``engines.spark_engine`` on Spark. Damage is a
finding, never an exception. Nothing is written to the directories that are read.

Needs the ``spark`` extra (numpy, pyarrow; pyspark for ``spark_engine`` only).
"""
