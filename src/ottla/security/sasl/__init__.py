"""The broker's side of SASL: one file per mechanism, and one connection's way through them."""
