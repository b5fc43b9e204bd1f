"""Chromium without a window, driven over a pipe in its DevTools protocol: no driver has to be installed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0
_CODES = {"Escape": 27}
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class PageFailed(AssertionError):
    pass


class Browser:
    """One page. What scripts complain about, or a policy forbids, is kept in `complaints`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._buffer = b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable", {})
        self.resize(1280, 900)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", {"features": features})

    def open(self, address: str) -> None:
        self._call("Page.navigate", {"url": address})
        self.wait_for(
            f"location.href.startsWith({json.dumps(address.partition('#')[0])}) && "
            "document.readyState === 'complete'"
        )

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        answer = self._call(
            "Runtime.evaluate",
            {"expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": True},
        )
        if "exceptionDetails" in answer:
            raise PageFailed(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def wait_for(self, script: str, within_s: float = DEADLINE_S) -> None:
        """Until the expression is true; pages that are left meanwhile are no reason to give up."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            try:
                found = self.run(f"!!({script})")
            except (PageFailed, LostContext):
                found = None
            if found:
                return
            select.select([], [], [], 0.02)
        raise PageFailed(f"never true: {script}\npage: {self.text()[:2000]}\ncomplaints: {self.complaints}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def click(self, selector: str) -> None:
        self.wait_for(
            f"'ready' in document.documentElement.dataset && document.querySelector({json.dumps(selector)})"
        )
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector: str, text: str) -> None:
        self.wait_for(
            f"'ready' in document.documentElement.dataset && document.querySelector({json.dumps(selector)})"
        )
        self.run(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input', {{bubbles: true}}));"
            " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            event: dict[str, Any] = {"type": kind, "key": key}
            if key in _CODES:
                event["windowsVirtualKeyCode"] = _CODES[key]
            if kind == "keyDown" and len(key) == 1:
                event["text"] = key
            self._call("Input.dispatchKeyEvent", event)

    def screenshot(self, path: Path) -> None:
        data = self._call("Page.captureScreenshot", {"format": "png"})["data"]
        path.write_bytes(base64.b64decode(data))

    def command(self, method: str, **params: Any) -> Any:
        """One of the protocol's own, such as those that tell of memory."""
        return self._call(method, params)

    def _call(self, method: str, params: dict[str, Any]) -> Any:
        mine = next(self._ids)
        message: dict[str, Any] = {"id": mine, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == mine:
                if "error" in answer:
                    raise LostContext(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Page.javascriptDialogOpening":
                # None of ours opens one; whoever does would keep the page from going on.
                self.complaints.append(f"a dialog: {params['message']}")
                accept = {
                    "id": next(self._ids),
                    "method": "Page.handleJavaScriptDialog",
                    "params": {"accept": True},
                    "sessionId": self._session,
                }
                os.write(self._out, json.dumps(accept).encode() + b"\0")

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise PageFailed("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise PageFailed("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        read: dict[str, Any] = json.loads(message)
        return read


class LostContext(Exception):
    """The page that was asked is gone."""


@contextmanager
def browser() -> Iterator[Browser]:
    path = executable()
    assert path is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def descriptors() -> None:
            """The browser reads from 3 and writes to 4."""
            high_in, high_out = os.dup2(theirs_in, 20), os.dup2(theirs_out, 21)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        process = subprocess.Popen(
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-extensions",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
            ],
            preexec_fn=descriptors,  # noqa: PLW1509 - the only way to choose descriptors
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
