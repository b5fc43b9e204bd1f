"""Confluent's REST API, route by route.

Paths are taken as they were sent, so that a subject may have a slash in it (`%2F`). Below
`/contexts/{context}` they are the same again, for the subjects of that context.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla import __version__
from ottla.registry import errors
from ottla.registry.errors import NotLeader, RegistryError
from ottla.registry.formats import TYPES
from ottla.registry.forwarding import FORWARDED, NOT_LEADER, OFFSET, ForwardingFailed, forward
from ottla.registry.json_text import read_json
from ottla.registry.rules import LATEST, Outcome, Rules, Wanted
from ottla.registry.schema import AVRO, NUMBER_MAX, Schema, Version, read_extra, read_references
from ottla.registry.service import TROUBLE, RegistryService
from ottla.registry.subjects import ANY_CONTEXT, in_context, normalize, parse_subject

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LEADER_WAIT_S = 30.0
_LOOK_AGAIN_S = 0.2
_DIGITS_MAX: Final = 1000
_BODY: Final = "ottla.body"
_BODY_BYTES_MAX = 16 * 1024 * 1024

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def registry_app(service: RegistryService) -> ASGIApp:
    """An ASGI application; `ottla schema-registry` serves it."""
    return _Paths(_Api(service).application())


class _Paths:
    """Hands on the path undecoded, and the context it is in apart from it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")
            context = ""
            if path.startswith("/contexts/") and path.count("/") > 2:
                _, _, name, rest = path.split("/", 3)
                context, path = urllib.parse.unquote(name).strip(":"), f"/{rest}"
            scope = {**scope, "path": path.rstrip("/") or "/", "ottla.context": context}
        await self._app(scope, receive, send)


class _Api:
    def __init__(self, service: RegistryService) -> None:
        self._service = service

    def application(self) -> Starlette:
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/", self._root),
            ("GET", "/subjects", self._subjects),
            ("POST", "/subjects/{subject}", self._look_up),
            ("DELETE", "/subjects/{subject}", self._delete_subject),
            ("GET", "/subjects/{subject}/metadata", self._latest_with_metadata),
            ("GET", "/subjects/{subject}/versions", self._versions),
            ("POST", "/subjects/{subject}/versions", self._register),
            ("GET", "/subjects/{subject}/versions/{version}", self._version),
            ("DELETE", "/subjects/{subject}/versions/{version}", self._delete_version),
            ("GET", "/subjects/{subject}/versions/{version}/schema", self._version_text),
            ("GET", "/subjects/{subject}/versions/{version}/referencedby", self._referenced_by),
            ("GET", "/schemas", self._schemas),
            ("GET", "/schemas/types", self._types),
            ("GET", "/schemas/ids/{id}", self._of_id),
            ("GET", "/schemas/ids/{id}/schema", self._text_of_id),
            ("GET", "/schemas/ids/{id}/subjects", self._subjects_of_id),
            ("GET", "/schemas/ids/{id}/versions", self._versions_of_id),
            ("GET", "/schemas/guids/{guid}", self._of_guid),
            ("GET", "/schemas/guids/{guid}/ids", self._ids_of_guid),
            ("POST", "/compatibility/subjects/{subject}/versions", self._compatibility),
            ("POST", "/compatibility/subjects/{subject}/versions/{version}", self._compatibility),
            ("GET", "/config", self._config),
            ("PUT", "/config", self._set_config),
            ("DELETE", "/config", self._delete_config),
            ("GET", "/config/{subject}", self._config),
            ("PUT", "/config/{subject}", self._set_config),
            ("DELETE", "/config/{subject}", self._delete_config),
            ("GET", "/mode", self._mode),
            ("PUT", "/mode", self._set_mode),
            ("DELETE", "/mode", self._delete_mode),
            ("GET", "/mode/{subject}", self._mode),
            ("PUT", "/mode/{subject}", self._set_mode),
            ("DELETE", "/mode/{subject}", self._delete_mode),
            ("GET", "/contexts", self._contexts),
            ("DELETE", "/contexts/{context}", self._delete_context),
            ("GET", "/v1/metadata/id", self._metadata_id),
            ("GET", "/v1/metadata/version", self._metadata_version),
        ]
        return Starlette(
            routes=[Route(path, handler, methods=[method]) for method, path, handler in routes],
            exception_handlers={
                RegistryError: _refused,
                HTTPException: _refused,
                RecursionError: _too_deep,
                **dict.fromkeys(TROUBLE, _in_trouble),
            },
        )

    # Subjects

    async def _subjects(self, request: Request) -> Response:
        prefix = request.query_params.get("subjectPrefix", "" if _context(request) else ANY_CONTEXT)
        prefix = prefix if prefix.startswith(ANY_CONTEXT) else _qualified(request, prefix)
        deleted, only = _flag(request, "deleted"), _flag(request, "deletedOnly")
        found = await self._read(lambda rules: rules.subjects(prefix, deleted=deleted, deleted_only=only))
        return _json(_page(request, found))

    async def _look_up(self, request: Request) -> Response:
        subject, schema = _subject(request), (await _wanted(request)).schema
        normalizes, deleted = _flag(request, "normalize"), _flag(request, "deleted")
        form = request.query_params.get("format", "")

        def ask(rules: Rules) -> Version:
            found = rules.look_up(subject, schema, normalize=normalizes, deleted=deleted)
            return rules.formatted(found, form)

        return _json((await self._read(ask)).shown())

    async def _delete_subject(self, request: Request) -> Response:
        subject, permanent = _subject(request), _flag(request, "permanent")
        return await self._write(request, lambda rules: rules.delete_subject(subject, permanent=permanent))

    async def _latest_with_metadata(self, request: Request) -> Response:
        subject, query = _subject(request), request.query_params
        wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
        deleted = _flag(request, "deleted")
        found = await self._read(lambda rules: rules.latest_with(subject, wanted, deleted=deleted))
        return _json(found.shown())

    # Versions

    async def _versions(self, request: Request) -> Response:
        subject = _subject(request)
        deleted, only = _flag(request, "deleted"), _flag(request, "deletedOnly")
        found = await self._read(lambda rules: rules.versions(subject, deleted=deleted, deleted_only=only))
        return _json(_page(request, found))

    async def _register(self, request: Request) -> Response:
        subject, wanted = _subject(request), await _wanted(request)
        normalizes = _flag(request, "normalize")

        def decide(rules: Rules) -> Outcome:
            return rules.register(subject, wanted, normalize=normalizes)

        return await self._write(request, decide, _shown_registered, may_be_known=True)

    async def _version(self, request: Request) -> Response:
        return _json((await self._find_version(request)).shown())

    async def _version_text(self, request: Request) -> Response:
        return _text((await self._find_version(request)).schema.text)

    async def _find_version(self, request: Request) -> Version:
        subject, number = _subject(request), _number(request)
        deleted, form = _flag(request, "deleted"), request.query_params.get("format", "")
        return await self._read(
            lambda rules: rules.formatted(rules.version(subject, number, deleted=deleted), form)
        )

    async def _delete_version(self, request: Request) -> Response:
        subject, number, permanent = _subject(request), _number(request), _flag(request, "permanent")
        return await self._write(
            request, lambda rules: rules.delete_version(subject, number, permanent=permanent)
        )

    async def _referenced_by(self, request: Request) -> Response:
        subject, number = _subject(request), _number(request)
        return _json(await self._read(lambda rules: rules.referenced_by(subject, number)))

    # Schemas

    async def _schemas(self, request: Request) -> Response:
        prefix = request.query_params.get("subjectPrefix", ANY_CONTEXT)
        deleted, latest = _flag(request, "deleted"), _flag(request, "latestOnly")
        found = await self._read(lambda rules: rules.schemas(prefix, deleted=deleted, latest_only=latest))
        return _json([version.shown() for version in _page(request, found)])

    async def _types(self, _: Request) -> Response:
        return _json(list(TYPES))

    async def _of_id(self, request: Request) -> Response:
        version = await self._find_id(request)
        shown = version.schema.shown()
        if "subject" in request.query_params:
            shown = {"subject": version.subject, "version": version.number, **shown}
        return _json(shown)

    async def _text_of_id(self, request: Request) -> Response:
        return _text((await self._find_id(request)).schema.text)

    async def _find_id(self, request: Request) -> Version:
        wanted, subject = _id(request), _scope_of_id(request)
        form = request.query_params.get("format", "")
        return await self._read(lambda rules: rules.formatted(rules.of_id(wanted, subject)[0], form))

    async def _places_of_id(self, request: Request) -> list[Version]:
        wanted, subject = _id(request), _scope_of_id(request)
        deleted = _flag(request, "deleted")
        found = await self._read(lambda rules: rules.of_id(wanted, subject))
        return [version for version in found if deleted or not version.deleted]

    async def _subjects_of_id(self, request: Request) -> Response:
        found = await self._places_of_id(request)
        return _json(_page(request, sorted({version.subject for version in found})))

    async def _versions_of_id(self, request: Request) -> Response:
        found = await self._places_of_id(request)
        rows = [{"subject": version.subject, "version": version.number} for version in found]
        return _json(_page(request, rows))

    async def _of_guid(self, request: Request) -> Response:
        guid, form = _parameter(request, "guid"), request.query_params.get("format", "")
        found = await self._read(lambda rules: rules.formatted(rules.of_guid(guid)[0], form))
        return _json(found.schema.shown())

    async def _ids_of_guid(self, request: Request) -> Response:
        guid = _parameter(request, "guid")
        found = await self._read(lambda rules: rules.of_guid(guid))
        rows = {(parse_subject(version.subject).context, version.id) for version in found}
        return _json([{"context": context, "id": number} for context, number in sorted(rows)])

    # Compatibility, settings

    async def _compatibility(self, request: Request) -> Response:
        subject, schema = _subject(request), (await _wanted(request)).schema
        number = _number(request) if "version" in request.path_params else None
        normalizes, verbose = _flag(request, "normalize"), _flag(request, "verbose")
        try:
            reasons = await self._read(
                lambda rules: rules.reasons_against(subject, schema, number, normalize=normalizes)
            )
        except errors.InvalidSchema as error:
            if not verbose:
                raise
            reasons = [error.message]
        shown: dict[str, Any] = {"is_compatible": not reasons}
        return _json(shown | {"messages": reasons} if verbose else shown)

    async def _config(self, request: Request) -> Response:
        subject, or_global = _setting_of(request), _flag(request, "defaultToGlobal")
        return _json(await self._read(lambda rules: rules.config(subject, or_global=or_global)))

    async def _set_config(self, request: Request) -> Response:
        subject, wanted = _setting_of(request), await _body(request)
        return await self._write(request, lambda rules: rules.set_config(subject, wanted))

    async def _delete_config(self, request: Request) -> Response:
        subject = _setting_of(request)
        return await self._write(request, lambda rules: rules.delete_config(subject))

    async def _mode(self, request: Request) -> Response:
        subject, or_global = _setting_of(request), _flag(request, "defaultToGlobal")
        return _json({"mode": await self._read(lambda rules: rules.mode(subject, or_global=or_global))})

    async def _set_mode(self, request: Request) -> Response:
        subject, force = _setting_of(request), _flag(request, "force")
        wanted = str((await _body(request)).get("mode", ""))
        return await self._write(request, lambda rules: rules.set_mode(subject, wanted, force=force))

    async def _delete_mode(self, request: Request) -> Response:
        subject = _setting_of(request)
        return await self._write(request, lambda rules: rules.delete_mode(subject))

    async def _contexts(self, request: Request) -> Response:
        return _json(_page(request, await self._read(lambda rules: rules.contexts())))

    async def _delete_context(self, request: Request) -> Response:
        context = _parameter(request, "context").strip(":")
        return await self._write(request, lambda rules: rules.delete_context(context))

    # The registry itself

    async def _root(self, _: Request) -> Response:
        return _json({})

    async def _metadata_id(self, _: Request) -> Response:
        service = self._service
        clusters = {"kafka-cluster": service.cluster_id, "schema-registry-cluster": service.group}
        return _json({"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def _metadata_version(self, _: Request) -> Response:
        return _json({"version": f"ottla-{__version__}", "commitId": ""})

    async def _read(self, ask: Callable[[Rules], T]) -> T:
        return await self._service.read(ask)

    async def _write(
        self,
        request: Request,
        decide: Callable[[Rules], Outcome],
        show: Callable[[Any], Any] = lambda answer: answer,
        *,
        may_be_known: bool = False,
    ) -> Response:
        """By this registry if it leads, or else by the one that does, once there is one."""
        service = self._service
        now = asyncio.get_running_loop().time
        deadline = now() + _LEADER_WAIT_S
        if may_be_known and not service.is_leader:
            known = await service.read_known(decide)
            if known is not None:
                return _json(show(known))
        while True:
            try:
                answer, offset = await service.write(decide)
                return _json(show(answer), headers={OFFSET: str(offset)})
            except NotLeader:
                if FORWARDED in request.headers:
                    text = "this registry does not lead"
                    return _json(_error(50004, text), 500, {NOT_LEADER: "true"})
            leader = service.leader
            if leader is not None and not service.is_chosen:
                forwarded = await self._forward(leader.url, request)
                if forwarded is not None:
                    return forwarded
            if now() > deadline:
                text = "Leader not known: no registry of this group can write at present."
                raise RegistryError(50004, text)
            await service.wait_for_change_of_leader(_LOOK_AGAIN_S)

    async def _forward(self, url: str, request: Request) -> Response | None:
        """None where it has to be tried again."""
        target = request.scope["raw_path"].decode()
        if request.url.query:
            target += f"?{request.url.query}"
        body = request.scope.get(_BODY, b"")
        asked = forward(url, request.method, target, request.headers, body)
        try:
            answer = await self._service.while_it_leads(url, asked)
        except ForwardingFailed as error:
            # To register or set something twice is to do it once; to delete it twice is not.
            if error.was_sent and request.method == "DELETE":
                raise RegistryError(
                    50003, f"Error while forwarding the request to the leader: {error}"
                ) from None
            return None
        if answer.is_refused:
            return None
        if answer.offset is not None:
            await self._service.wait_until(answer.offset)
        return Response(answer.body, answer.status, media_type=MEDIA_TYPE)


def _shown_registered(version: Version) -> dict[str, Any]:
    # Without the text: a client would take it for the form it sent, which of Protobuf it need not be.
    return {"id": version.id, "version": version.number, "guid": version.schema.guid}


# What a request says


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = read_json((await _bounded_body(request)).decode())
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The request is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RegistryError(400, "The request is not a JSON object")
    return body


async def _bounded_body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > _BODY_BYTES_MAX:
            raise errors.schema_too_large()
    # It can be read once, and may have to be forwarded.
    body = request.scope[_BODY] = b"".join(parts)
    return body


async def _wanted(request: Request) -> Wanted:
    body = await _body(request)
    try:
        references = read_references(body.get("references"))
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(422, f"A reference needs name, subject and version: {error!r}") from None
    try:
        metadata, rule_set = read_extra(body.get("metadata")), read_extra(body.get("ruleSet"))
    except ValueError as error:
        raise RegistryError(422, f"Neither metadata nor a rule set: {error}") from None
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str):
        raise errors.InvalidSchema("Empty schema")
    schema = Schema(str(kind), text, references, metadata, rule_set)
    return Wanted(schema, _positive(body.get("id")), _positive(body.get("version")))


def _positive(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return None
    if value > NUMBER_MAX:
        raise RegistryError(400, f"{value} is larger than ids and versions can be")
    return value


def _context(request: Request) -> str:
    context: str = request.scope["ottla.context"]
    return context


def _parameter(request: Request, name: str) -> str:
    return urllib.parse.unquote(request.path_params[name])


def _qualified(request: Request, name: str) -> str:
    context = _context(request)
    return normalize(in_context(context, name) if context else name)


def _subject(request: Request) -> str:
    return _qualified(request, _parameter(request, "subject"))


def _setting_of(request: Request) -> str | None:
    """None for the settings of all; those of a context stand under its prefix."""
    if "subject" not in request.path_params:
        context = _context(request)
        return f":{context}:" if context and context != "." else None
    name = _parameter(request, "subject")
    return None if name == ":.:" else _qualified(request, name)


def _scope_of_id(request: Request) -> str | None:
    subject = request.query_params.get("subject")
    context = _context(request)
    if subject is not None or context:
        return _qualified(request, subject or "") or None
    return None


def _number(request: Request) -> int:
    text = _parameter(request, "version")
    if text in {"latest", "-1"}:
        return LATEST
    if not _is_number(text) or not 1 <= int(text) <= NUMBER_MAX:
        raise errors.invalid_version(text)
    return int(text)


def _id(request: Request) -> int:
    text = _parameter(request, "id")
    if not _is_number(text):
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _page(request: Request, rows: list[Any]) -> list[Any]:
    start, limit = (request.query_params.get(name, "") for name in ("offset", "limit"))
    rows = rows[int(start) :] if _is_number(start) else rows
    return rows[: int(limit)] if _is_number(limit) else rows


# What is answered


def _is_number(text: str) -> bool:
    """Of digits that are not too many for Python to read."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    if value is None:
        return Response(status_code=204, headers=headers)
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(body, status, headers, MEDIA_TYPE)


def _text(schema: str) -> Response:
    return Response(schema, media_type=MEDIA_TYPE)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, RegistryError):
        return _json(_error(error.code, error.message), error.status)
    assert isinstance(error, HTTPException)
    return _json(_error(error.status_code, f"HTTP {error.status_code} {error.detail}"), error.status_code)


async def _too_deep(_: Request, error: Exception) -> Response:
    return _json(_error(42201, "Invalid schema: it is nested too deeply"), 422)


async def _in_trouble(_: Request, error: Exception) -> Response:
    if isinstance(error, TimeoutError):
        return _json(_error(50002, "The operation timed out"), 500)
    return _json(_error(50001, f"Error in the backend data store: {error}"), 500)
