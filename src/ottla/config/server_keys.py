"""Broker keys of the network side: listeners, connections, requests and their limits."""

from __future__ import annotations

from ottla.config.key import INT_MAX, ConfigKey, ConfigType

_THREADS = "Ottla serves all requests on one event loop."

SERVER_KEYS = (
    ConfigKey(
        "listeners",
        ConfigType.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, as NAME://host:port. An empty host or 0.0.0.0 means every interface, port 0 "
        "any free port. Apache Kafka's default is PLAINTEXT://:9092, every interface; Ottla is reachable "
        "from this machine alone until told otherwise.",
        required=True,
        importance="high",
    ),
    ConfigKey(
        "advertised.listeners",
        ConfigType.LIST,
        None,
        "Addresses that clients are told to connect to, where they differ from listeners.",
        required=True,
        importance="high",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        ConfigType.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. A listener of "
        "controllers that is not named is PLAINTEXT.",
        importance="low",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        ConfigType.STRING,
        None,
        "Listener that brokers use between themselves.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        ConfigType.STRING,
        "PLAINTEXT",
        "Security protocol between brokers when inter.broker.listener.name is not set.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "socket.request.max.bytes",
        ConfigType.INT,
        100 * 1024 * 1024,
        "Largest request accepted; a larger one closes its connection.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        ConfigType.LONG,
        512 * 1024 * 1024,
        "Memory for requests that are being read or served, over all connections; while it is used up no "
        "more is read. Long answers that clients have not read yet may take a quarter as much. -1 sets no "
        "limit, which is Apache Kafka's default.",
    ),
    ConfigKey(
        "queued.max.requests",
        ConfigType.INT,
        500,
        "Requests waiting for a thread before no more are read. Ottla bounds memory instead, see "
        "queued.max.request.bytes.",
        minimum=1,
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        ConfigType.INT,
        50,
        "Connections the operating system holds until they are accepted.",
        minimum=1,
        effective=False,
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        ConfigType.INT,
        100 * 1024,
        "Send buffer of a connection. Ottla leaves it to the operating system.",
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        ConfigType.INT,
        100 * 1024,
        "Receive buffer of a connection. Ottla leaves it to the operating system.",
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        ConfigType.LONG,
        10 * 60 * 1000,
        "Time without a request after which a connection is closed; negative means never.",
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "Delay before a client that failed to authenticate is told so and its connection is closed.",
        minimum=0,
        importance="low",
    ),
    ConfigKey(
        "max.connections",
        ConfigType.INT,
        INT_MAX,
        "Connections open at the same time; further ones are refused. "
        "`listener.name.<name>.max.connections` bounds those of one listener.",
        minimum=0,
        dynamic="cluster-wide",
    ),
    ConfigKey(
        "max.connections.per.ip",
        ConfigType.INT,
        INT_MAX,
        "Connections open at the same time from one address; 0 admits only max.connections.per.ip.overrides.",
        minimum=0,
        dynamic="cluster-wide",
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        "Exceptions to max.connections.per.ip, as address:count separated by commas.",
        dynamic="cluster-wide",
    ),
    ConfigKey(
        "max.connection.creation.rate",
        ConfigType.INT,
        INT_MAX,
        "Connections accepted per second, on all listeners; on one of them with listener.name.<name> before. "
        "More have to wait for their first answer.",
        minimum=0,
        dynamic="cluster-wide",
    ),
    ConfigKey(
        "ottla.metrics.listener",
        ConfigType.STRING,
        "",
        "Where Prometheus finds this broker's metrics, as host:port; the path is /metrics. Empty serves "
        "none. An empty host means every interface, port 0 any free port. Needs `pip install "
        "'ottla[metrics]'`.",
        importance="low",
    ),
    ConfigKey(
        "ottla.metrics.tls.certificate.file",
        ConfigType.STRING,
        "",
        "A PEM file with the certificate under which metrics are served by HTTPS, and those that vouch for "
        "it. Empty serves them by HTTP.",
        importance="low",
    ),
    ConfigKey(
        "ottla.metrics.tls.key.file",
        ConfigType.STRING,
        "",
        "A PEM file with the private key of that certificate. Empty: it is in the same file.",
        importance="low",
    ),
    ConfigKey(
        "ottla.metrics.username",
        ConfigType.STRING,
        "",
        "Who reads metrics has to give this name and ottla.metrics.password (HTTP basic authentication). "
        "Empty lets everybody read them.",
        importance="low",
    ),
    ConfigKey(
        "ottla.metrics.password",
        ConfigType.PASSWORD,
        None,
        "The password that goes with ottla.metrics.username.",
        importance="low",
    ),
    ConfigKey(
        "ottla.otel.endpoint",
        ConfigType.STRING,
        "",
        "A collector of OpenTelemetry to send metrics to, by OTLP over HTTP in JSON, such as "
        "http://localhost:4318; `/v1/metrics` is added. Empty sends none.",
        importance="low",
    ),
    ConfigKey(
        "ottla.otel.interval.ms",
        ConfigType.INT,
        60_000,
        "How often metrics are sent to ottla.otel.endpoint.",
        minimum=100,
        importance="low",
    ),
    ConfigKey(
        "ottla.otel.headers",
        ConfigType.PASSWORD,
        None,
        "Headers that go with each push, as name=value separated by commas.",
        importance="low",
    ),
    ConfigKey(
        "ottla.records.validate",
        ConfigType.STRING,
        "header",
        "How far producers' batches are trusted. `header`: what their headers say is checked, and records "
        "only where a topic needs it (keys for cleanup.policy=compact, the age of timestamps for "
        "message.timestamp.before.max.ms). `records`: every record is looked at, as Apache Kafka does, and a "
        "batch that consumers could not read is refused. In the file, one listener can have it for itself: "
        "`listener.name.<name>.ottla.records.validate`. The guide on running says what it costs.",
        choices=("header", "records"),
        dynamic="cluster-wide",
    ),
    ConfigKey(
        "request.timeout.ms",
        ConfigType.INT,
        30_000,
        "Time a broker waits for an answer of another node.",
        importance="high",
    ),
    ConfigKey(
        "fetch.max.bytes",
        ConfigType.INT,
        55 * 1024 * 1024,
        "Most bytes of records in one fetch response, whatever the consumer asks for.",
        minimum=1024,
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        1000,
        "Incremental fetch sessions kept at the same time.",
        minimum=0,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        ConfigType.INT,
        2000,
        "Most partitions that one DescribeTopicPartitions response lists.",
        minimum=1,
    ),
    ConfigKey(
        "num.network.threads",
        ConfigType.INT,
        3,
        f"Threads for the network. {_THREADS}",
        minimum=1,
        importance="high",
        dynamic="cluster-wide",
        effective=False,
    ),
    ConfigKey(
        "telemetry.max.bytes",
        ConfigType.INT,
        1024 * 1024,
        "Largest push of metrics that a client may send, as it is compressed.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "num.io.threads",
        ConfigType.INT,
        8,
        f"Threads for requests. {_THREADS}",
        minimum=1,
        importance="high",
        dynamic="cluster-wide",
        effective=False,
    ),
    ConfigKey(
        "background.threads",
        ConfigType.INT,
        10,
        f"Threads for background work. {_THREADS}",
        minimum=1,
        importance="high",
        dynamic="cluster-wide",
        effective=False,
    ),
)
