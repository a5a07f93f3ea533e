"""The log audit: reads raw log directories and reports the fate of every transaction and every inconsistency.

The steps, one module each:

1. ``directories`` lists the segments and the files beside them; one task per segment (``audit_plan``).
2. ``segments.batch_headers`` reads a segment's batch headers into numpy columns and trusts no byte.
3. ``segments.segment_facts`` reduces a segment to rows: runs of batches, markers, index entries, snapshots, decisions
   (``producer_runs``, ``index_checks``, ``internal_topics``). Their number does not depend on the segment's size.
4. ``producer_history`` follows one producer on one partition in offset order and yields its transactions and findings;
   ``coordinator_decisions`` matches its markers with the coordinator's log.
5. ``transaction_outcomes`` compares all transactions of a producer with the coordinator's log: torn, hanging;
   ``committed_offsets`` compares committed offsets with log ends and aborted data.
6. ``report`` and ``html`` present the result.

Steps 2 to 5 are pure functions over streams of rows sorted in a stated order. ``pipeline`` runs them on an engine that
maps and sorts: ``engines.local_engine`` in this process, ``engines.spark_engine`` on Spark. Damage is a finding, never
an exception. The audit writes nothing to the directories it reads.

Needs the ``spark`` extra (numpy, pyarrow; pyspark for ``spark_engine`` only).
"""
