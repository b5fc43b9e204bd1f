"""The metadata quorum: who leads, and which records of the metadata log are committed."""
