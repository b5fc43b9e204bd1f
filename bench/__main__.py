"""`python -m bench`: the whole comparison."""

from __future__ import annotations

import sys

from bench.compare import main

sys.exit(main())
