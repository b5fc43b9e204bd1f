"""Settings of connectors, converters, transforms and workers: declared once, checked and described
from there."""
