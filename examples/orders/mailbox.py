"""A mail server that keeps what it is sent in a file, a line of JSON each: where the demo's mails go.

python mailbox.py --port 1025 --file mails.jsonl
"""

from __future__ import annotations

import argparse
import json
import signal
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller


class Mailbox:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        message = message_from_bytes(envelope.content, policy=policy.default)
        text = message.get_body().get_content().strip()
        line = {"id": message["Message-ID"], "to": message["To"], "subject": message["Subject"], "text": text}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return "250 taken"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=1025)
    parser.add_argument("--file", type=Path, default=Path("mails.jsonl"))
    given = parser.parse_args()
    Controller(Mailbox(given.file), hostname="127.0.0.1", port=given.port).start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
