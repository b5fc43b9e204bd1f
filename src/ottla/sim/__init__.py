"""Whole brokers in one process, with virtual time, a seeded scheduler and faults: how storage is trusted.

`loop` runs, `disk` and `net` fail, `world` puts hosts together, `faults` breaks them, `checkers` judges,
`client` asks. A run is a function of its seed: the same seed gives the same events in every process.
"""
