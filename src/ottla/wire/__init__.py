"""Bytes on the wire: framing, the codecs of every API, and the table of error codes. No I/O."""
