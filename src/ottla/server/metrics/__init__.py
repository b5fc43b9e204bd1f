"""What a broker tells Prometheus, over HTTP on a port of its own.

    on the event loop: read plain numbers (snapshot) · in a thread: what they mean (declared), as text (page)

Nothing is counted for its sake where requests are served. `prometheus_client` writes the text, and is
imported only where a listener is configured.
"""
