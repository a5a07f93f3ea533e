"""The base of the Spark rooms: sessions, options, errors, and the objects that a job sends to its tasks.

``sessions`` distinguishes classic sessions from Spark Connect and ``versions`` the releases of PySpark;
``local_session`` starts a session on this machine (``spark_home``). ``client_settings`` and ``option_values`` parse
options, ``pickling`` serializes objects for tasks, ``errors`` defines one-line errors.
"""
