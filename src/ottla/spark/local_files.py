"""Hadoop's local files without a process for each: two Java classes of three lines, written as their bytes.

    package ottla;
    public class RawFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(Path file, FsPermission permission) {}
    }
    public class LocalFiles extends org.apache.hadoop.fs.LocalFileSystem {
        public LocalFiles() { super(new RawFiles()); }
    }

Hadoop sets the permissions of each file that it creates. Without its native library, which Spark does not
bring along, it starts `chmod` for that, and again for the file's checksum: for the small files of a
checkpoint, that is most of the time. Here files have the permissions that new files of the process have,
which are the same unless its umask is a special one. There is no compiler where Spark runs, so the classes
are put together here.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

CLASS_NAME: Final = "ottla.LocalFiles"
SETTINGS: Final = {
    "fs.file.impl": CLASS_NAME,
    # Others in the machine have one already, which would be taken instead.
    "fs.file.impl.disable.cache": "true",
}

_RAW: Final = "ottla/RawFiles"
_HADOOP: Final = "org/apache/hadoop/fs/"
_MAGIC: Final = 0xCAFEBABE
_JAVA_8: Final = 52
_PUBLIC: Final = 1
_SUPER: Final = 0x20
_ALOAD_0, _RETURN, _NEW, _DUP, _INVOKESPECIAL = b"\x2a", b"\xb1", b"\xbb", b"\x59", b"\xb7"


def put_classes(directory: Path) -> None:
    """Where a machine with this directory in its class path finds them."""
    for name, content in {_RAW: _raw_files(), CLASS_NAME.replace(".", "/"): _local_files()}.items():
        path = directory / f"{name}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _raw_files() -> bytes:
    made = _ClassFile(_RAW, f"{_HADOOP}RawLocalFileSystem")
    made.method("<init>", "()V", 1, 1, _ALOAD_0 + made.call_init(made.parent_name, "()V") + _RETURN)
    made.method("setPermission", f"(L{_HADOOP}Path;L{_HADOOP}permission/FsPermission;)V", 0, 3, _RETURN)
    return made.to_bytes()


def _local_files() -> bytes:
    made = _ClassFile(CLASS_NAME.replace(".", "/"), f"{_HADOOP}LocalFileSystem")
    new_raw = _NEW + struct.pack(">H", made.class_of(_RAW)) + _DUP + made.call_init(_RAW, "()V")
    call_parent = made.call_init(made.parent_name, f"(L{_HADOOP}FileSystem;)V")
    made.method("<init>", "()V", 3, 1, _ALOAD_0 + new_raw + call_parent + _RETURN)
    return made.to_bytes()


class _ClassFile:
    """A public class with methods of straight code."""

    def __init__(self, name: str, parent_name: str) -> None:
        self.parent_name = parent_name
        self._pool: list[bytes] = []
        self._methods: list[bytes] = []
        self._own, self._parent = self.class_of(name), self.class_of(parent_name)

    def class_of(self, name: str) -> int:
        return self._constant(7, struct.pack(">H", self._text(name)))

    def call_init(self, name: str, arguments: str) -> bytes:
        signature = self._constant(12, struct.pack(">HH", self._text("<init>"), self._text(arguments)))
        init = self._constant(10, struct.pack(">HH", self.class_of(name), signature))
        return _INVOKESPECIAL + struct.pack(">H", init)

    def method(self, name: str, arguments: str, stack: int, places: int, code: bytes) -> None:
        # No exceptions are caught, and nothing is said about the code.
        body = struct.pack(">HHI", stack, places, len(code)) + code + struct.pack(">HH", 0, 0)
        head = struct.pack(">HHHH", _PUBLIC, self._text(name), self._text(arguments), 1)
        self._methods.append(head + struct.pack(">HI", self._text("Code"), len(body)) + body)

    def to_bytes(self) -> bytes:
        head = struct.pack(">IHHH", _MAGIC, 0, _JAVA_8, len(self._pool) + 1)
        # No interfaces, no fields; behind the methods, no attributes.
        shape = struct.pack(">HHHHHH", _PUBLIC | _SUPER, self._own, self._parent, 0, 0, len(self._methods))
        return b"".join((head, *self._pool, shape, *self._methods, struct.pack(">H", 0)))

    def _text(self, value: str) -> int:
        return self._constant(1, struct.pack(">H", len(value)) + value.encode())

    def _constant(self, tag: int, content: bytes) -> int:
        self._pool.append(bytes([tag]) + content)
        return len(self._pool)
