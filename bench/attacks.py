"""Clients that mean no good, each attack at a pace of its own: what `bench.hostile` lets loose on a broker.

Every attack runs in a process of its own and gives back what it did. It keeps to its pace because machines
have few cores: an attacker that took one for itself would slow down everybody, whatever the broker does.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench import encoding
from bench.connection import HOST

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""A reset leaves no TIME_WAIT behind: a hundred thousand connections would use up the ports."""
PATIENCE_S = 60.0
WORKERS = 16
GUESSERS = 64
SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 17, 36, 3
UNKNOWN_API = 32_000
USER, PASSWORD = "alice", "alice secret"
LARGEST_REQUEST_BYTES = 100 << 20
FETCHED_BYTES = 50 << 20
HALF_OPEN_S = 20.0
SLOW_S = 20.0
CLIENT_HELLO_CUT = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where the broker's listeners are."""

    plain: int
    tls: int
    sasl: int
    trusted: bytes
    """The authority, in PEM."""
    topic: str
    """With enough in it for long answers."""

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.trusted.decode())


@dataclass(slots=True)
class Done:
    """What an attack came to."""

    connections: int = 0
    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_seconds: float = 0.0


Attack = Callable[["Place", int, float], Done]
"""With how many frames, sockets or logins, and how many of them a second."""


class Pace:
    """One after the other, so many a second; who is late does not catch up all at once."""

    def __init__(self, count: int, per_second: float) -> None:
        self._lock = threading.Lock()
        self._numbers = iter(range(count))
        self._interval_s = 1 / per_second
        self._next = time.monotonic()

    def __iter__(self) -> Iterator[int]:
        while True:
            with self._lock:
                number = next(self._numbers, None)
                if number is None:
                    return
                now = time.monotonic()
                due = self._next = max(self._next + self._interval_s, now - self._interval_s)
            if due > now:
                time.sleep(due - now)
            yield number


def frames_before_login(place: Place, count: int, per_second: float) -> Done:
    """A third each: the open listener; TLS that is none; and TLS, but no login."""
    context = place.context()

    def one(number: int, chance: random.Random, done: Done) -> None:
        match number % 3:
            case 0:
                with _connected(place.plain) as connection:
                    _send_and_wait(connection, _bad_frame(number, chance), done)
            case 1:
                with _connected(place.tls) as connection:
                    _send_and_wait(connection, _bad_record(chance), done)
            case _:
                with _connected(place.sasl, context) as connection:
                    _send_and_wait(connection, _bad_frame(number, chance), done)

    return _by_workers(one, count, per_second, WORKERS)


def frames_after_login(place: Place, count: int, per_second: float) -> Done:
    """Each takes its connection along, so there are as many logins as frames."""
    context = place.context()

    def one(number: int, chance: random.Random, done: Done) -> None:
        with _connected(place.sasl, context) as connection:
            log_in(connection, USER, PASSWORD)
            _send_and_wait(connection, _bad_frame(number, chance), done)

    return _by_workers(one, count, per_second, WORKERS)


def half_open_handshakes(place: Place, count: int, per_second: float) -> Done:
    """Silent ones, halves of a ClientHello, and whole ones whose answer nobody takes. All stay."""
    done = Done()
    hello = _client_hello()
    sent = [b"", hello[:CLIENT_HELLO_CUT], hello]
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in Pace(count, per_second):
            try:
                connection = stack.enter_context(_connected((place.tls, place.sasl)[number % 2]))
                connection.sendall(sent[number % 3])
            except OSError as error:
                done.outcomes[type(error).__name__] += 1
                continue
            done.connections += 1
            selector.register(connection, selectors.EVENT_READ)
        ends = time.monotonic() + HALF_OPEN_S
        while time.monotonic() < ends and selector.get_map():
            for key, _ in selector.select(0.5):
                with contextlib.suppress(OSError):
                    if key.fileobj.recv(1 << 16):  # type: ignore[union-attr]
                        continue
                selector.unregister(key.fileobj)
                done.outcomes["cut off"] += 1
    return done


def slow_readers(place: Place, count: int, per_second: float) -> Done:
    """Logged in, they ask for as much as there is, several times, and read a few bytes a second of it."""
    done = Done()
    context = place.context()
    frame, _ = encoding.fetch_frame(place.topic, 0, 0, wait_ms=0, partition_bytes_max=FETCHED_BYTES)
    with contextlib.ExitStack() as stack:
        readers = []
        for number in Pace(count, per_second):
            port = place.plain if number % 2 else place.sasl
            reader = stack.enter_context(_connected(port, None if number % 2 else context))
            done.connections += 1
            if number % 2 == 0:
                log_in(reader, USER, PASSWORD)
            reader.sendall(bytes(frame) * 4)
            done.frames += 4
            readers.append(reader)
        ends = time.monotonic() + SLOW_S
        for reader in itertools.cycle(readers):
            if time.monotonic() > ends:
                break
            try:
                done.outcomes["bytes read"] += len(reader.recv(64))
            except OSError as error:
                done.outcomes[type(error).__name__] += 1
            time.sleep(1 / count)
    return done


def wrong_passwords(place: Place, count: int, per_second: float) -> Done:
    """Known users and unknown ones, by PLAIN and SCRAM, on as many connections as there are guesses."""
    context = place.context()

    def one(number: int, chance: random.Random, done: Done) -> None:
        with _connected(place.sasl, context) as connection:
            user = USER if number % 2 else f"user-{chance.randrange(10**9)}"
            try:
                if number % 4 < 2:
                    log_in(connection, user, f"guess {number}")
                else:
                    _guess_by_scram(connection, user)
            except PermissionError:
                done.outcomes["refused"] += 1
                return
            raise AssertionError(f"{user} was let in with a password that was guessed")

    return _by_workers(one, count, per_second, GUESSERS)


ATTACKS: dict[str, Attack] = {
    "frames before login": frames_before_login,
    "frames after login": frames_after_login,
    "half-open handshakes": half_open_handshakes,
    "slow readers": slow_readers,
    "wrong passwords": wrong_passwords,
}


def carried_out(name: str, place: Place, count: int, per_second: float) -> Done:
    """For the process that does nothing else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    began = time.monotonic()
    done = ATTACKS[name](place, count, per_second)
    done.seconds = time.monotonic() - began
    done.cpu_seconds = time.process_time()
    return done


# What they are made of.


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """By PLAIN; PermissionError for one that is refused."""
    _ask(connection, SASL_HANDSHAKE, 1, encoding.string("PLAIN"))
    token = f"\0{user}\0{password}".encode()
    _check_let_in(_ask(connection, SASL_AUTHENTICATE, 1, _sized(token)))


def _guess_by_scram(connection: socket.socket, user: str) -> None:
    _ask(connection, SASL_HANDSHAKE, 1, encoding.string("SCRAM-SHA-512"))
    first = f"n,,n={user},r=0123456789abcdef".encode()
    answer = _ask(connection, SASL_AUTHENTICATE, 1, _sized(first))
    _check_let_in(answer)
    nonce = answer[answer.index(b"r=") + 2 : answer.index(b",s=")]
    final = b"c=biws,r=" + nonce + b",p=" + b"A" * 86 + b"=="
    _check_let_in(_ask(connection, SASL_AUTHENTICATE, 1, _sized(final)))


def _check_let_in(answer: bytes) -> None:
    (error,) = struct.unpack_from(">h", answer, 4)
    if error:
        raise PermissionError(error)


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _request(api: int, version: int, body: bytes) -> bytes:
    return _sized(struct.pack(">hhi", api, version, 7) + encoding.string("stranger") + body)


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    connection.sendall(_request(api, version, body))
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received


def _bad_frame(number: int, chance: random.Random) -> bytes:
    """Malformed, cut short, or too long: by turns."""
    noise = chance.randbytes(chance.randint(8, 500))
    match number // 3 % 9:
        case 0:
            return struct.pack(">i", -chance.randint(1, 1 << 31))
        case 1:
            return _sized(noise[:7])
        case 2:
            return _sized(noise)
        case 3:
            return _request(UNKNOWN_API, 0, noise)
        case 4:
            return _request(
                chance.choice([encoding.PRODUCE, encoding.FETCH, METADATA, SASL_HANDSHAKE]), 7, noise
            )
        case 5:
            return _sized(struct.pack(">hhih", encoding.API_VERSIONS, 0, 7, 30_000) + noise)
        case 6:
            return _request(encoding.API_VERSIONS, 0, b"")[: chance.randint(1, 20)]
        case 7:
            return struct.pack(">i", LARGEST_REQUEST_BYTES) + noise
        case _:
            return struct.pack(">i", LARGEST_REQUEST_BYTES + chance.randint(1, 1 << 30)) + bytes(60_000)


def _bad_record(chance: random.Random) -> bytes:
    noise = chance.randbytes(chance.randint(1, 500))
    hello = b"\x16\x03\x01"
    return chance.choice(
        [
            noise,
            b"GET / HTTP/1.1\r\n\r\n",
            hello + b"\xff\xff" + noise,
            hello + struct.pack(">h", len(noise)) + noise,
        ]
    )


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST).do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def _connected(port: int, tls: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    connection = socket.create_connection((HOST, port), timeout=PATIENCE_S)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname=HOST)
        yield connection
    finally:
        connection.close()


def _send_and_wait(connection: socket.socket, data: bytes, done: Done) -> None:
    """Until the broker has ended the connection, so that nothing waits unseen behind it."""
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    received = 0
    while part := connection.recv(1 << 16):
        received += len(part)
    done.outcomes["answered, then closed" if received else "closed"] += 1


def _by_workers(
    one: Callable[[int, random.Random, Done], None], count: int, per_second: float, workers: int
) -> Done:
    pace = Pace(count, per_second)
    parts = [Done() for _ in range(workers)]
    failures: list[BaseException] = []

    def work(part: Done, seed: int) -> None:
        chance = random.Random(seed)
        for number in pace:
            try:
                part.connections += 1
                part.frames += 1
                one(number, chance, part)
            except Exception as error:
                # A broker may hang up at any point, but has to answer or hang up.
                if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                    part.outcomes[type(error).__name__] += 1
                    continue
                failures.append(error)
                return

    threads = [threading.Thread(target=work, args=(part, seed)) for seed, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    whole = Done()
    for part in parts:
        whole.connections += part.connections
        whole.frames += part.frames
        whole.outcomes += part.outcomes
    return whole
