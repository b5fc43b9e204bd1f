"""Forks transformers out of a process that has imported what they need: a start takes milliseconds.

    python -m transforming.zygote <module>

Reads one line of JSON per transformer and answers with its process id. What the transformer reports goes to
the named pipe it was given, which ends when the transformer does.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

from transforming.work import Work


def main() -> None:
    transformer = importlib.import_module(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    for line in sys.stdin:
        order = json.loads(line)
        process_id = os.fork()
        if process_id == 0:
            sys.stdin.close()
            _run(transformer, os.open(order.pop("pipe"), os.O_WRONLY), Work(**order))
        print(process_id, flush=True)


def _run(transformer: Any, pipe: int, work: Work) -> NoReturn:
    try:
        transformer.run(work, lambda step: os.write(pipe, f"{step}\n".encode()))
    except BaseException:
        os.write(pipe, f"failed {traceback.format_exc()!r}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    main()
