"""Whole clusters with clients under seeded faults: `workload.py` runs one, `mixes.py` says what it is made
of, `forbidden.py` what must never be seen of it."""
