"""Interactive queries: what a table holds right now, from Python or over HTTP."""
