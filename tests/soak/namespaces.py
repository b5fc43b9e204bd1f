"""Hosts that are network namespaces, on one switch. What goes from one to another can be lost.

They have addresses that nobody outside of them can reach. A host that is to lose what it sends to another is
told a hardware address for it that nobody has: its packets go out, and nobody takes them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

_CLONE_NEWNET = 0x40000000
_NOWHERE = "02:00:00:00:00:99"
_SWITCH = "switch"


def unavailable() -> str | None:
    """Why there are none here."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "there is no ip (apt-get install iproute2)"
    name = f"ottla-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class Hosts:
    """By name, with addresses from 10.99.0.1 on."""

    def __init__(self, names: Sequence[str]) -> None:
        self._stack = ExitStack()
        self._lost: set[tuple[str, str]] = set()
        self.addresses = {name: f"10.99.0.{number}" for number, name in enumerate(names, 1)}
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        for name in (_SWITCH, *self.addresses):
            _ip("netns", "add", self.namespace(name))
            self._stack.callback(_ip, "netns", "del", self.namespace(name))
            self._in(name, "link", "set", "lo", "up")
        self._in(_SWITCH, "link", "add", "bridge", "type", "bridge")
        self._in(_SWITCH, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(self.addresses.items(), 1):
            port = f"port{number}"
            ends = ("eth0", "netns", self.namespace(name), "type", "veth", "peer", "name", port)
            _ip("link", "add", *ends, "netns", self.namespace(_SWITCH))
            self._in(_SWITCH, "link", "set", port, "master", "bridge", "up")
            self._in(name, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(name, "link", "set", "eth0", "up")

    def namespace(self, name: str) -> str:
        return f"ottla-{os.getpid()}-{name}"

    def command(self, name: str) -> list[str]:
        """What is put before a command to run it on a host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def lose(self, source: str, target: str) -> None:
        """What `source` sends to `target` from now on, in one direction."""
        self._lost.add((source, target))
        neighbour = (self.addresses[target], "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        self._in(source, "neigh", "replace", *neighbour)

    def part(self, left: Sequence[str], right: Sequence[str]) -> None:
        """In both directions."""
        for one in left:
            for other in right:
                self.lose(one, other)
                self.lose(other, one)

    def heal(self) -> None:
        for source, target in sorted(self._lost):
            self._in(source, "neigh", "del", self.addresses[target], "dev", "eth0")
        self._lost.clear()

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread, and the threads that it starts, are on a host."""
        libc = ctypes.CDLL(None, use_errno=True)
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.namespace(name)}", os.O_RDONLY)
        try:
            if libc.setns(there, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                yield
            finally:
                libc.setns(before, _CLONE_NEWNET)
        finally:
            os.close(there)
            os.close(before)

    def close(self) -> None:
        self._stack.close()

    def _in(self, name: str, *arguments: str) -> None:
        _ip("-n", self.namespace(name), *arguments)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
