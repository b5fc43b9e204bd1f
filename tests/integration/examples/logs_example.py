"""The example's modules as its own programs see them."""

from __future__ import annotations

import sys

from tests.integration.examples.test_log_examples import EXAMPLES, load_example

if str(EXAMPLES / "logs") not in sys.path:
    sys.path.insert(0, str(EXAMPLES / "logs"))

agent = load_example("logs/agent.py")
pipeline = load_example("logs/pipeline.py")
index = load_example("logs/index.py")
hosts = load_example("logs/hosts.py")
