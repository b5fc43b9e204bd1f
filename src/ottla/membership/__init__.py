"""This broker's place in its cluster: the way to the active controller, registration, heartbeats."""
