"""Programs that read a topic, write another and commit both in one transaction; and ways to kill them."""
