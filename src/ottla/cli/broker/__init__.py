"""Running a broker in the foreground, and ending it."""
