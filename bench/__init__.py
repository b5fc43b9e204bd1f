"""Benchmarks: the same load against Ottla and a peer, on one machine, in one run. See bench/README.md."""
