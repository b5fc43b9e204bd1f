"""What a program says: builder, streams, tables. Knows the plan it makes, nothing of how that runs."""
