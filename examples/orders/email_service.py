"""Sends what is in the topic `mails`, over SMTP.

At least once: a mail server cannot take part in a transaction, so what was sent just before a crash, and not
noted yet, is sent again. The Message-ID is made of the order, so a mail that comes twice is the same mail to
every mail server and client that looks at it.

    python email_service.py --bootstrap-server localhost:9092 --smtp localhost:1025
"""

from __future__ import annotations

import argparse
import signal
import smtplib
import time
from email.message import EmailMessage
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message
from shop.model import MAILS, Mail

from ottla.streams import Serdes

GROUP = "shop-email"
SENDER = "shop@shop.example"
AGAIN_S_MAX = 10.0


def to_message(mail: Mail) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = SENDER, mail.to, mail.subject
    message["Message-ID"] = f"<order-{mail.order}@shop.example>"
    message.set_content(mail.text)
    return message


def send(host: str, port: int, message: EmailMessage) -> None:
    """Until the mail server has it: while it is away mails wait in their topic."""
    wait_s = 0.1
    while True:
        try:
            with smtplib.SMTP(host, port, timeout=10) as server:
                server.send_message(message)
                return
        except (OSError, smtplib.SMTPServerDisconnected, smtplib.SMTPResponseException) as error:
            print(f"{message['Message-ID']} is not sent: {error}; again in {wait_s:g} s", flush=True)
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, AGAIN_S_MAX)


def serve(bootstrap_servers: str, host: str, port: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # A mail of a transaction that is aborted was never meant.
            "isolation.level": "read_committed",
        }
    )
    serde = Serdes.of(Mail)
    consumer.subscribe([MAILS])
    stopping: list[Any] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.append(True))
    try:
        while not stopping:
            message: Message | None = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            mail: Mail = serde.deserialize(message.value())
            send(host, port, to_message(mail))
            consumer.commit(message)
    finally:
        consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--smtp", default="localhost:1025")
    given = parser.parse_args()
    host, _, port = given.smtp.rpartition(":")
    serve(given.bootstrap_server, host or "localhost", int(port))


if __name__ == "__main__":
    main()
