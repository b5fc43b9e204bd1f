"""Protobuf schemas: `.proto` text or a serialized descriptor in, one text out. protoc reads, we write.

Clients send either form: Java text, Python the descriptor in Base64, and each may ask for the other's.
"""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
import sys
import tempfile
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats.proto_compatibility import unreadable
from ottla.registry.formats.proto_text import default_json_name, proto_text

if TYPE_CHECKING:
    from ottla.registry.formats import Dependencies, Parsed

_OWN_NAME = "default.proto"
_COMPILE_TIMEOUT_S = 30


class ProtobufSchema:
    def __init__(self, file: FileDescriptorProto, imports: list[FileDescriptorProto]) -> None:
        self.file = file
        self.imports = imports

    @cached_property
    def canonical(self) -> str:
        return proto_text(self.file, self.imports)

    @property
    def normalized(self) -> str:
        return self.canonical

    def formatted(self, name: str) -> str:
        if name == "serialized":
            return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()
        if name == "default":
            return self.canonical
        raise InvalidSchema(f"Unsupported format {name}")

    def unreadable(self, written: Parsed) -> list[str]:
        assert isinstance(written, ProtobufSchema)
        return unreadable(self, written)


def parse_protobuf(text: str, dependencies: Dependencies) -> ProtobufSchema:
    serialized = _descriptor_in(text)
    if serialized is None:
        files = _compile({**dict(dependencies), _OWN_NAME: text}, _OWN_NAME)
        own = files.pop()
    else:
        own = serialized
        own.name = _OWN_NAME
        # What it imports is compiled as another file's imports, to come in the order of dependence.
        lines = [f'import "{name}";' for name in own.dependency]
        files = _compile({**dict(dependencies), _OWN_NAME: "\n".join(['syntax = "proto3";', *lines])}, "")
        _check(own, files)
    _drop_what_says_nothing(own)
    return ProtobufSchema(own, files)


def _descriptor_in(text: str) -> FileDescriptorProto | None:
    try:
        data = base64.b64decode(text, validate=True)
        file = FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    # The name of a message, say, is good Base64 too.
    return file if file.message_type or file.enum_type or file.dependency else None


def _check(file: FileDescriptorProto, imports: list[FileDescriptorProto]) -> None:
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in (*imports, file):
            pool.AddSerializedFile(each.SerializeToString())
    except TypeError as error:
        raise InvalidSchema(f"Invalid Protobuf schema: {error}") from None


def _compile(sources: dict[str, str], own: str) -> list[FileDescriptorProto]:
    """The file of that name last, what it imports before; without a name what the default file imports."""
    with tempfile.TemporaryDirectory(prefix="ottla-protoc-") as folder:
        for name, text in sources.items():
            path = os.path.normpath(os.path.join(folder, name))
            if not path.startswith(folder + os.sep):
                raise InvalidSchema(f"Invalid Protobuf schema: {name} is no name for an import")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        out = os.path.join(folder, "out.descriptors")
        argv = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *_known_imports()]
        argv += ["--include_imports", f"--descriptor_set_out={out}", _OWN_NAME]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"Invalid Protobuf schema: not read in {_COMPILE_TIMEOUT_S} s") from None
        if done.returncode:
            raise InvalidSchema(f"Invalid Protobuf schema: {_complaint(done.stderr, folder)}")
        with open(out, "rb") as file_out:
            files = list(FileDescriptorSet.FromString(file_out.read()).file)
    return files if own else files[:-1]


def _complaint(stderr: str, folder: str) -> str:
    lines = [
        line.removeprefix(folder + os.sep)
        for line in stderr.splitlines()
        if line.strip() and "warning:" not in line
    ]
    return "; ".join(lines) or "protoc cannot read it"


@cache
def _known_imports() -> tuple[str, ...]:
    """What schemas may import without a reference: Google's own types."""
    import importlib.resources
    import importlib.util

    found = [f"-I{importlib.resources.files('grpc_tools') / '_proto'}"]
    google = importlib.util.find_spec("google.type")
    if google is not None and google.submodule_search_locations:
        found.append(f"-I{os.path.dirname(os.path.dirname(next(iter(google.submodule_search_locations))))}")
    return tuple(found)


def _drop_what_says_nothing(file: FileDescriptorProto) -> None:
    """What protoc writes and descriptors of generated code lack, so that both give one text."""
    file.ClearField("source_code_info")
    if file.syntax == "proto2":
        file.ClearField("syntax")

    def walk(message: Any) -> None:
        for field in (*message.field, *message.extension):
            _drop_json_name(field)
        for nested in message.nested_type:
            walk(nested)

    for message in file.message_type:
        walk(message)
    for field in file.extension:
        _drop_json_name(field)


def _drop_json_name(field: Any) -> None:
    if field.json_name == default_json_name(field.name):
        field.ClearField("json_name")
