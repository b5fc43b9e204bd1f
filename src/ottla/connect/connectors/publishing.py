"""Files of a micro-batch made visible in a directory once, however often the micro-batch is run.

Readers of the directory see no other files than these: what is hidden from Spark, Hive and others are
directories whose names begin with an underscore, and everything is written there first.

1. The rows are written into a directory of this attempt's own, under `_ottla/<query>/`.
2. A manifest says which files these are and where they go. From then on the micro-batch has these files and
   no others: whoever runs it again finds the manifest.
3. Each file is moved to its place. A move is all or nothing (a rename, or in object stores a copy that is
   there when it is whole), and one that was done is not done again.
4. Manifests of earlier micro-batches are deleted: Spark repeats no other than the last.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from ottla.connect.errors import ConnectError
from ottla.spark.engine import HadoopFiles

HIDDEN: Final = "_ottla"
_log = logging.getLogger(__name__)


class Directory:
    """In any file system that Spark knows: a local path, hdfs://, s3a:// and others. Names are relative."""

    def __init__(self, session: Any, location: str) -> None:
        self._hadoop = HadoopFiles(session)
        self._root = location.rstrip("/")
        self._files = self._hadoop.system(self._path(""))

    def path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _path(self, name: str) -> Any:
        return self._hadoop.path(self.path(name))

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        return self._hadoop.read(self._path(name))

    def write(self, name: str, text: str) -> None:
        """There as a whole or not at all."""
        draft = f"{name}.{uuid.uuid4().hex}"
        self._hadoop.write(self._path(draft), text)
        self.move(draft, name)

    def move(self, name: str, target: str, *, is_first: bool = False) -> None:
        """Does nothing where it was done before, which the first time it was not."""
        source, place = self._path(name), self._path(target)
        if self._files.exists(place):
            self._files.delete(source, False)
        elif self._files.exists(source):
            self._files.mkdirs(place.getParent())
            if not self._files.rename(source, place) and not self._files.exists(place):
                raise OSError(f"{source} could not be moved to {place}")
        elif is_first:
            raise ConnectError(
                f"{source} is gone before it came to {place}, and its records with it: nobody else may "
                f"delete what is under {HIDDEN}. A restarted task goes on behind them; to have them, empty "
                "the directory, stop the connector, DELETE its offsets and resume it"
            )
        else:
            _log.warning("%s is not there any more: somebody has taken it away since it was written", place)

    def files(self, under: str) -> list[str]:
        """All of them, however deep, in order."""
        found = []
        listed = self._files.listFiles(self._path(under), True)
        while listed.hasNext():
            found.append(under + "/" + self._below(listed.next().getPath(), under))
        return sorted(found)

    def _below(self, path: Any, under: str) -> str:
        base = self._files.makeQualified(self._path(under)).toUri()
        return str(base.relativize(self._files.makeQualified(path).toUri()).getPath()).removeprefix("/")

    def children(self, name: str) -> Iterator[str]:
        if self.exists(name):
            for status in self._files.listStatus(self._path(name)):
                yield str(status.getPath().getName())

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), True)


class Publication:
    def __init__(self, directory: Directory, query_id: str) -> None:
        """`query_id` is another one where a query begins anew: its micro-batches are others then."""
        self._directory = directory
        self._query = query_id[:8]
        self._place = f"{HIDDEN}/{query_id}"

    def publish(self, batch_id: int, write: Callable[[str], None]) -> None:
        """`write` puts files into the directory that it is given, which does not exist yet."""
        manifest = f"{self._place}/{batch_id}.json"
        stored = self._directory.read(manifest)
        own: str | None = None
        if stored is None:
            attempt = f"{self._place}/{batch_id}-{uuid.uuid4().hex}"
            self._write(attempt, write)
            self._refuse_later(batch_id)
            own = json.dumps(self._moves(batch_id, attempt))
            self._directory.write(manifest, own)
            # Should somebody else have been faster, theirs counts.
            stored = self._directory.read(manifest)
        for name, target in json.loads(stored or "{}").items():
            self._directory.move(name, target, is_first=stored == own)
        for name in list(self._directory.children(self._place)):
            if name != f"{batch_id}.json":
                self._directory.delete(f"{self._place}/{name}")

    def _write(self, attempt: str, write: Callable[[str], None]) -> None:
        try:
            write(self._directory.path(attempt))
        except Exception:
            # On a full disk each attempt would else take what room there is left.
            with suppress(Exception):
                self._directory.delete(attempt)
            raise

    def _refuse_later(self, batch_id: int) -> None:
        """A worker thought dead may wake up when another one has done its micro-batch, and more."""
        for name in self._directory.children(self._place):
            number = name.removesuffix(".json")
            if number.isdecimal() and int(number) > batch_id:
                raise ConnectError(
                    f"micro-batch {batch_id} was done by somebody else, who is at {number}: two workers run "
                    "this connector, and this one stops"
                )

    def _moves(self, batch_id: int, attempt: str) -> dict[str, str]:
        """Where each file goes: directories that stand for values stay, names say which query and batch."""
        moves: dict[str, str] = {}
        for path in self._directory.files(attempt):
            parts = path.removeprefix(f"{attempt}/").split("/")
            # What Spark and Hadoop write beside the rows. Directories have rows in them, whatever their name.
            if parts[-1].startswith(("_", ".")):
                continue
            suffix = parts[-1].partition(".")[2]
            name = f"{self._query}-{batch_id:010}-{len(moves):05}.{suffix}"
            moves[path] = "/".join([*parts[:-1], name])
        return moves
