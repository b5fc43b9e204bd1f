"""`ottla start --console`: the console beside a broker or a cluster, in a process of its own, so that whoever
looks at it does not hold up records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec

from ottla.cli.broker.supervisor import end_with_parent
from ottla.config import BrokerConfig, ConfigError

_NEEDED = ("starlette", "uvicorn")
_STOP_S_MAX = 10.0


def check_console(config: BrokerConfig) -> None:
    """ConfigError where it could not do its work."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise ConfigError("--console needs more than a broker does: pip install 'ottla[console]'")
    listener = config.broker_listeners[0].listener
    protocol = config.listener(listener).protocol
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"--console: clients of the listener {listener} have to say how they connect ({protocol}); start "
            "the console by itself: ottla console --command-config FILE, with --login where people log in"
        )


@asynccontextmanager
async def console_beside(port: int | None, bootstrap: str) -> AsyncIterator[None]:
    """None for no console. What it has to say, such as that its port is in use, it says itself."""
    if port is None:
        yield
        return
    arguments = ["console", "--bootstrap-server", bootstrap, "--port", str(port)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ottla.cli.main",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        # Ctrl-C is for the broker, which stops it.
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S_MAX)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
