"""What a Connect cluster knows, as state machines over the records of its three topics. Nothing here
does I/O."""
