"""The group coordinator: who is in a group, who reads what, and how far they have come."""
