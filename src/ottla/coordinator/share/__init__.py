"""The share coordinator: how far share groups are in each partition, and what is under way there."""
