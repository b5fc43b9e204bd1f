"""Records of a topic: read a piece at a time, told apart by filters, and shown as what they are."""
