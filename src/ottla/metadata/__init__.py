"""The state of the cluster: its records, the image they add up to, and the files both are kept in."""

# Imported before anything else of kio because it keeps Hypothesis out of a broker's start.
import ottla.wire.messages  # noqa: F401
