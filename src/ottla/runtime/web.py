"""What stands at an address of the web, or in a file, read in a thread of its own.

Not in one of those for the disk: somebody else's server may take its time, and neither an fsync nor the end
of this process is to wait for that.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

_PART_BYTES = 64 * 1024


async def fetch(url: str, tls: ssl.SSLContext | None, *, seconds_max: float, bytes_max: int) -> bytes:
    """`url` is https, http or file. OSError says why it cannot be had."""
    return await _in_thread(
        f"fetch {url}", lambda: _read(url, tls, time.monotonic() + seconds_max, bytes_max)
    )


async def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds_max: float) -> None:
    """`url` is https or http. OSError says why it was not taken."""
    await _in_thread(f"post {url}", lambda: _send(url, body, headers, seconds_max))


async def _in_thread(name: str, call: Callable[[], bytes]) -> bytes:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(content: bytes, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(content)
        else:
            done.set_exception(error)

    def work() -> None:
        content, failure = b"", None
        try:
            content = call()
        except OSError as error:
            failure = error
        except Exception as error:
            # Whatever else an address can give, such as an answer that is no HTTP.
            failure = OSError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(settle, content, failure)
        except RuntimeError:
            # Nobody waits any more: the loop is closed.
            return

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done


def _send(url: str, body: bytes, headers: Mapping[str, str], seconds_max: float) -> bytes:
    request = Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310 - as below
    try:
        with build_opener(_NeverLessSafe()).open(request, timeout=seconds_max):
            return b""
    except HTTPError as error:
        raise OSError(f"it is answered with status {error.code}") from error
    except URLError as error:
        raise OSError(str(error.reason)) from error


def _read(url: str, tls: ssl.SSLContext | None, deadline: float, bytes_max: int) -> bytes:
    opener = build_opener(_NeverLessSafe(), HTTPSHandler(context=tls))
    # The scheme was checked by whoever has set the address, and who can set it can read files anyway.
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see above
    content = bytearray()
    try:
        with opener.open(request, timeout=max(deadline - time.monotonic(), 0.1)) as answer:
            while part := answer.read1(_PART_BYTES) if isinstance(answer, HTTPResponse) else answer.read():
                content += part
                if len(content) > bytes_max:
                    raise OSError(f"it is longer than {bytes_max} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError("it does not come to an end in time")
    except HTTPError as error:
        raise OSError(f"it is answered with status {error.code}") from error
    except URLError as error:
        raise OSError(str(error.reason)) from error
    return bytes(content)


class _NeverLessSafe(HTTPRedirectHandler):
    """Whoever was asked safely is not to be believed by what somebody says in the open."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise URLError(f"it sends on to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
