"""One module per family of APIs: each translates between the wire and the domain, and holds no state."""

# Imported before anything else of kio because it keeps Hypothesis out of a broker's start.
import ottla.wire.messages  # noqa: F401
