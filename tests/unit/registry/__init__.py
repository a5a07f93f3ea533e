"""Tests of the registry's machine, without a topic and without HTTP."""
