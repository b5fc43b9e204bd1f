"""One module per family of APIs: each translates between the wire and the domain, and holds no state."""

# Imported before anything else of kio because it keeps Hypothesis out of a broker's start.
import ottla.wire.messages  # noqa: F401


def load() -> None:
    """Import every module here, and with it register every handler."""
    import importlib
    import pkgutil

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
