"""The ground of every room of Spark: sessions, options, errors, and the objects that a job sends to its tasks.

``sessions`` tells classic sessions from Spark Connect, ``versions`` the releases of PySpark; ``local_session`` starts
one on this machine (``spark_home``). ``client_settings`` and ``option_values`` read options, ``shipped`` pickles what
tasks get, ``errors`` are one line each.
"""
