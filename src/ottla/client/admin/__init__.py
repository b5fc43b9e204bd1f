"""Administration of a cluster, Ottla's or any other that speaks the protocol: functions of a cluster client.

Each takes a `ClusterClient` first and raises what that raises: KafkaError for what a broker refuses.
"""
