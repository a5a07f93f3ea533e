"""`oncelog registry`: serves a schema registry, exports and imports its schemas"""
