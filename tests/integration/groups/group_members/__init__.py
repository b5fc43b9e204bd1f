"""Members of consumer groups, several to a process, and the journal of what they received and committed."""
