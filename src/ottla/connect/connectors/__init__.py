"""The connectors that come with Ottla."""
