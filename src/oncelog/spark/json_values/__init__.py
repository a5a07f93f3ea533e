"""Decodes JSON values into columns: exactly the value written, or a reason why not (docs/jobs.md, Values decoded)."""
