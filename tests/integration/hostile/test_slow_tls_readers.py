"""Clients that ask for much through TLS and read none of it: nothing is encrypted for them in advance."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

from bench import encoding
from bench.admin import create_topic
from bench.connection import Connection
from bystander import MIB, Bystander, memory_bytes

from ottla.cli.files.certificates import Authority
from ottla.runtime.net import free_ports
from ottla.testing import BrokerProcess

HOST = "127.0.0.1"
TOPIC = "long"
BATCHES = 30
READERS = 10
MEMORY_BYTES_MAX = 60 * MIB
"""A megabyte or so for each: they ask for thirty."""
SECONDS = 3.0


def test_answers_are_encrypted_as_they_are_read(tmp_path: Path) -> None:
    authority = Authority()
    identity = tmp_path / "broker.pem"
    identity.write_bytes(authority.issue("broker", [HOST]).identity)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    plain, tls = free_ports(HOST, 2)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls}",
        "ssl.keystore.location": str(identity),
    }
    with BrokerProcess(settings, port=plain) as broker, Bystander(broker.bootstrap_servers) as bystander:
        create_topic(plain, TOPIC, 1)
        batch = encoding.record_batch([bytes(1000)] * 1000, int(time.time() * 1000))
        writer = Connection(plain)
        for _ in range(BATCHES):
            writer.call(encoding.produce_frame(TOPIC, 0, batch, encoding.ACKS_ALL))
        writer.close()
        fetch, _ = encoding.fetch_frame(TOPIC, 0, 0, wait_ms=0, partition_bytes_max=BATCHES * MIB)
        before = memory_bytes(broker.pid)
        readers = []
        for _ in range(READERS):
            connection = socket.create_connection((HOST, tls), timeout=60)
            readers.append(context.wrap_socket(connection, server_hostname=HOST))
            readers[-1].sendall(bytes(fetch) * 2)
        growth = 0
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            bystander.assert_was_served()
            growth = max(growth, memory_bytes(broker.pid) - before)
        assert readers[0].recv(4), "nothing is sent at all"
        for reader in readers:
            reader.close()
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB"
        assert broker.stop(timeout_seconds=60) == 0
