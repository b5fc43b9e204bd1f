"""`ottla start --console`: the console beside a broker or a cluster, in a process of its own, so that whoever
looks at it does not hold up records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec

from ottla.cli.broker.supervisor import PAUSE_FIRST_S, PAUSE_MAX_S, STEADY_S, end_with_parent, ended
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
    console = _Console(["console", "--bootstrap-server", bootstrap, "--port", str(port)])
    keeping = asyncio.ensure_future(console.keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await console.stop()


class _Console:
    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def keep(self) -> None:
        """One that dies is started again, as brokers are; one that cannot begin is not."""
        now = asyncio.get_running_loop().time
        pause_s = PAUSE_FIRST_S
        while True:
            began = now()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla.cli.main",
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C is for the broker, which stops it.
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            status = await self._process.wait()
            is_steady = now() - began >= STEADY_S
            if status >= 0 and not is_steady:
                _say(f"the console {ended(status)} and is not served; all else goes on")
                return
            pause_s = PAUSE_FIRST_S if is_steady else min(pause_s * 2, PAUSE_MAX_S)
            _say(f"the console {ended(status)}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def stop(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_S_MAX)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


def _say(text: str) -> None:
    print(f"ottla: {text}", file=sys.stderr, flush=True)
