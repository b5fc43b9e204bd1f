"""The only writer of cluster state: commands become records, and answers once those are committed."""
