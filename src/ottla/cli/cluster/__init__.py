"""A cluster as tools see it: asked without asyncio, its records as text."""
