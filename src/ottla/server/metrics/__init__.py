"""What a broker tells Prometheus, over HTTP on a port of its own.

    now and then: how long requests take (sampling)
    at a scrape, on the event loop: plain numbers (snapshot, traffic, group_lag, numbers)
    in a thread: what they mean (declared, kafka_names, exporter_names), as text (page)

Where requests are served next to nothing is counted for its sake: one addition per hot request, one per
partition that records are written to, one per partition that they are read from. `prometheus_client` is
imported only where a listener is configured.
"""
