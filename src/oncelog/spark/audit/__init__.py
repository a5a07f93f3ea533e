"""The log audit: reads raw log directories and reports the fate of every transaction and every inconsistency.

``directories`` lists the segments, one task each (``audit_plan``). ``segments`` reduces each to rows (``model``), whose
number does not depend on the segment's size. ``producer_history``, with ``coordinator_decisions``, follows a producer
on one partition; ``transaction_outcomes`` compares all its transactions with the coordinator's log;
``committed_offsets`` checks offsets of groups. ``report`` and ``html`` present the result.

After the segments are read, steps are pure functions over sorted rows. ``pipeline`` runs them in this process or on
Spark (``engines``). Damage is a finding, never an exception. The audit writes nothing to the directories it reads.

Needs the ``spark`` extra (numpy, pyarrow; pyspark for ``spark_engine`` only).
"""
