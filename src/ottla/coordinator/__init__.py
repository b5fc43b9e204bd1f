"""Groups and transactions: deterministic state machines over records of internal topics, and their host."""

import ottla.wire.messages  # noqa: F401  (before any import of kio: it keeps Hypothesis out of a broker)
