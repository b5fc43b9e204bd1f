"""Runs a broker until it is told to stop, and says what happened in one line."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

import uvloop

from ottla import __version__
from ottla.cli.broker import pid_file
from ottla.cli.broker.console_beside import check_console, console_beside
from ottla.cli.broker.log_lines import log_to_stderr
from ottla.cli.broker.settings import broker_config, ignored, unreachable_from_elsewhere
from ottla.cli.broker.stop_signals import ignore_from_now_on, stop_signals, stopped_before_ready
from ottla.config import BrokerConfig, ConfigError
from ottla.config.listeners import ANY_HOST, Address
from ottla.log.manager import LogInTwoDirs
from ottla.membership import NotJoined
from ottla.metadata.local_directories import check_of_one_broker
from ottla.metadata.meta_properties import MetaPropertiesError
from ottla.metadata.records import MetadataRecordError
from ottla.node import Node
from ottla.raft.metadata_log import QuorumError
from ottla.raft.quorum_state import QuorumStateDamaged
from ottla.runtime import real_runtime
from ottla.runtime.disk import DiskLocked, PosixDisk
from ottla.runtime.freed_memory import keep_giving_back, share_one_heap

# What keeps a node from starting and is for the operator to mend: the texts say how.
_REFUSALS = (
    ConfigError,
    LogInTwoDirs,
    MetadataRecordError,
    MetaPropertiesError,
    NotJoined,
    QuorumError,
    QuorumStateDamaged,
)

# A broker makes few reference cycles and many short-lived objects: look for cycles a lot less often.
_GC_THRESHOLDS = (50_000, 20, 50)


def serve(
    properties_file: str | None,
    port: int | None,
    data_dir: str | None,
    settings: Sequence[str],
    log_level: str,
    console_port: int | None,
) -> int:
    """The status to exit with."""
    log_to_stderr(log_level)
    try:
        config = broker_config(properties_file, port, data_dir, settings)
        if console_port is not None:
            check_console(config)
        for directory in config.log_dirs:
            check_of_one_broker(PosixDisk(), directory)
    except (ConfigError, MetaPropertiesError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}")
    if config.unknown_keys:
        names = ", ".join(ignored(config.unknown_keys))
        print(f"ottla: warning: ignored settings that Ottla does not know: {names}", file=sys.stderr)
    _raise_file_limit()
    share_one_heap()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_serve(config, console_port))
    ignore_from_now_on()
    return status


def _raise_file_limit() -> None:
    """Every partition written to and every connection holds a file open; the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse what they announce.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig, console_port: int | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        # Shells and kernels may say twice that the terminal is gone; who presses Ctrl-C twice is in a hurry.
        act = stopping.set if number == signal.SIGHUP else partial(_stop_or_quit, stopping)
        loop.add_signal_handler(number, act)
    asked = asyncio.ensure_future(stopping.wait())

    runtime = real_runtime()
    node = Node(runtime, config)
    starting = asyncio.ensure_future(node.start())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return stopped_before_ready()
    except DiskLocked as error:
        return _fail(f"{error.filename}: in use by another broker; stop it or choose another --data-dir")
    except _REFUSALS as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(_os_error(error, config))

    data_dir = config.log_dirs[0]
    pid_file.write(data_dir)
    try:
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()
        _announce(node, config)
        failed = asyncio.ensure_future(node.wait_failed())
        giving_back = asyncio.ensure_future(keep_giving_back(runtime.offload))
        async with console_beside(console_port, _reached_at(node)):
            await asyncio.wait({failed, asked}, return_when=asyncio.FIRST_COMPLETED)
        giving_back.cancel()
        # The node has logged what failed, and knows not to call this a clean shutdown.
        await node.stop()
        return 1 if failed.done() else 0
    finally:
        pid_file.remove(data_dir)


def _stop_or_quit(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        os._exit(1)
    stopping.set()


def _reached_at(node: Node) -> str:
    """By a process of this machine."""
    host, port = node.address
    return str(Address("127.0.0.1" if host in ANY_HOST else host, port))


def _announce(node: Node, config: BrokerConfig) -> None:
    for warning in unreachable_from_elsewhere(config.broker_listeners, node.advertised):
        print(f"ottla: warning: {warning}", file=sys.stderr)
    host, port = node.address
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = (
        f"Ottla {__version__}",
        f"Ready: {address} in {_seconds_since_process_start():.2f} s",
        f"Data: {', '.join(config.log_dirs)}",
        f"Cluster: {node.cluster_id}",
    )
    # One write, so that whoever waits for the second line has the rest too.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _seconds_since_process_start() -> float:
    """Including the interpreter's own start, where the system tells."""
    try:
        with open("/proc/self/stat") as file:
            # Fields are counted after the command name, which may itself contain spaces and brackets.
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.process_time()


def _os_error(error: OSError, config: BrokerConfig) -> str:
    if error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL} and error.filename is None:
        where = ", ".join(str(endpoint) for endpoint in config.broker_listeners)
        reasons = {
            errno.EADDRINUSE: "the port is in use; choose another with --port",
            errno.EACCES: "this user may not listen there; choose a port above 1023 with --port",
            errno.EADDRNOTAVAIL: "this machine does not have that address; see listeners",
        }
        return f"cannot listen on {where}: {reasons[error.errno]}"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _fail(message: str) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return 1
