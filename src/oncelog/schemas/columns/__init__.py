"""Payloads of many records to typed Arrow columns, without an object per record or value.

Records are decoded in lockstep: a :class:`Cursor` has a position in each of them, and every field is read for all of
them at once. A record that cannot be decoded has a reason and no value; its neighbours are not affected.
"""
