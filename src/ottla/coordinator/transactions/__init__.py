"""The transaction coordinator: which producer a transactional id belongs to, and how its transaction ends."""
