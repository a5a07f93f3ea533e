"""JSON values into columns: exactly what their bytes say, or a reason why not (docs/jobs.md, Values decoded)."""
