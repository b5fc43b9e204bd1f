"""Who is at the other end of a connection, what it may do, and how much of it."""
