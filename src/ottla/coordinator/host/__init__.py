"""What groups and transactions share: shards hosted on the logs of partitions that this broker leads."""
