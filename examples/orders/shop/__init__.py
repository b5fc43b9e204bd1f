"""What the services of the shop share: what events look like, and where they go."""
