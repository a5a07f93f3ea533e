"""Tables of other formats that a load writes into: Delta Lake and Apache Iceberg.

``table_target`` is the port, ``delta`` and ``iceberg`` implement it, ``load_into`` chooses one and loads.
"""
