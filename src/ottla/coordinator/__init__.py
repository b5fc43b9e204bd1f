"""Groups and their offsets: deterministic state machines over the records of `__consumer_offsets`."""

import ottla.wire.messages  # noqa: F401  (before any import of kio: it keeps Hypothesis out of a broker)
