"""Record batches (message format v2) as they stand on the wire and on disk."""
