"""What a program wants done, as immutable data between whoever describes it and whoever executes it."""
