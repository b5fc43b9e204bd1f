"""Every route of Kafka Connect, with its status codes, bodies and words."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla import __version__
from ottla.connect.connector_settings import CONNECTOR_CLASS, NAME
from ottla.connect.errors import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    SERVER_ERROR,
    ConnectError,
    RestError,
    bad_request,
    not_found,
)
from ottla.connect.herder import Herder, RequestElsewhere
from ottla.connect.lines import LINES_MAX
from ottla.connect.metrics import page
from ottla.connect.offset_requests import read_wanted
from ottla.connect.plugins import Kind
from ottla.connect.rest import openapi
from ottla.connect.rest.loggers import Loggers
from ottla.connect.state.configs import RestartAsked, TargetState
from ottla.connect.state.entries import TaskId

_HEALTH_S: Final = 10.0
_FORWARD_S: Final = 60.0
_LINES_S: Final = 5.0
"""Who looks at a connector is shown without the lines of a worker that does not answer."""
_FORBIDDEN: Final = 403
_TOO_LARGE: Final = 413
_BODY_BYTES_MAX: Final = 16 << 20
_TASK_DIGITS_MAX: Final = 9
_BAD_REQUEST_CLASS: Final = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"
"""Kafka validates in a task, whose error has the name of what it was in its text."""
_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def connect_app(herder: Herder, cluster_id: Callable[[], str | None], address: Callable[[], str]) -> ASGIApp:
    routes = _Routes(herder, cluster_id, address, Loggers())
    herder.foreman.on_logger = routes.loggers.set
    paths: list[tuple[str, dict[str, Handler]]] = [
        ("/", {"GET": routes.root}),
        ("/health", {"GET": routes.health}),
        ("/metrics", {"GET": routes.metrics}),
        ("/connectors", {"GET": routes.list_connectors, "POST": routes.create}),
        ("/connectors/{name}", {"GET": routes.info, "DELETE": routes.delete}),
        ("/connectors/{name}/config", {"GET": routes.config, "PUT": routes.put, "PATCH": routes.patch}),
        ("/connectors/{name}/status", {"GET": routes.status}),
        ("/connectors/{name}/logs", {"GET": routes.logs}),
        ("/connectors/{name}/topics", {"GET": routes.topics}),
        ("/connectors/{name}/topics/reset", {"PUT": routes.reset_topics}),
        ("/connectors/{name}/pause", {"PUT": routes.pause}),
        ("/connectors/{name}/resume", {"PUT": routes.resume}),
        ("/connectors/{name}/stop", {"PUT": routes.stop}),
        ("/connectors/{name}/restart", {"POST": routes.restart}),
        ("/connectors/{name}/tasks", {"GET": routes.tasks}),
        ("/connectors/{name}/tasks/{task}/status", {"GET": routes.task_status}),
        ("/connectors/{name}/tasks/{task}/restart", {"POST": routes.restart_task}),
        (
            "/connectors/{name}/offsets",
            {"GET": routes.offsets, "PATCH": routes.alter_offsets, "DELETE": routes.reset_offsets},
        ),
        ("/connector-plugins", {"GET": routes.plugins}),
        ("/connector-plugins/{plugin}/config", {"GET": routes.plugin_config}),
        ("/connector-plugins/{plugin}/config/validate", {"PUT": routes.validate}),
        ("/admin/loggers", {"GET": routes.list_loggers}),
        ("/admin/loggers/{logger}", {"GET": routes.logger, "PUT": routes.set_logger}),
        (openapi.PAGE, {"GET": routes.api_page}),
        (openapi.DOCUMENT, {"GET": routes.api_document}),
    ]
    origins = herder.settings["access.control.allow.origin"]
    middleware = []
    if origins:
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins.split(","), allow_methods=methods))
    app = Starlette(
        routes=[Route(path, _one_of(handlers), methods=list(handlers)) for path, handlers in paths],
        middleware=middleware,
        exception_handlers={
            HTTPException: _http_error,
            RestError: _rest_error,
            RequestElsewhere: _forwarded,
        },
    )
    return _AsWritten(app)


class _AsWritten:
    """Hands on the path undecoded: a name may have a slash in it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


def _one_of(handlers: Mapping[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        # Starlette serves HEAD wherever there is GET.
        handler = handlers["GET" if request.method == "HEAD" else request.method]
        try:
            return await handler(request)
        except (HTTPException, RestError, RequestElsewhere):
            raise
        except ClientDisconnect:
            return Response(status_code=BAD_REQUEST)
        except Exception as error:
            # Here, since Starlette would hand it on to the server, which tells of it once more.
            _log.exception("%s %s failed", request.method, request.url.path)
            return _error(SERVER_ERROR, str(error))

    return handle


async def _rest_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    return _error(error.status, str(error))


async def _forwarded(request: Request, error: Exception) -> Response:
    """The same request to the worker that it is about; once, since two that disagree would go on for ever."""
    if "forward" in request.query_params:
        message = f"{request.url.path} was sent to the wrong worker while workers rebalance: ask again"
        return _error(CONFLICT, message)
    target = f"http://{error}{request.url.path}?{request.url.query}&forward=false"

    def send() -> Response:
        asked = urllib.request.Request(target, b"", method=request.method)
        try:
            with urllib.request.urlopen(asked, timeout=_FORWARD_S) as answer:  # noqa: S310 - a worker of the same group, by HTTP
                return Response(answer.read(), answer.status, media_type="application/json")
        except urllib.error.HTTPError as refused:
            return Response(refused.read(), refused.code, media_type="application/json")
        except OSError as lost:
            return _error(SERVER_ERROR, f"the worker {error} cannot be reached: {lost}")

    return await asyncio.to_thread(send)


def _lines_at(worker: str, name: str) -> list[dict[str, Any]] | str:
    """What another worker has, or why it does not tell."""
    address = f"http://{worker}/connectors/{quote(name, safe='')}/logs?forward=false"
    try:
        with urllib.request.urlopen(address, timeout=_LINES_S) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())["lines"]
            return found
    except (OSError, ValueError, KeyError) as error:
        return f"the worker {worker} does not tell: {error}"


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error_code": status, "message": message}, status)


class _Routes:
    def __init__(
        self,
        herder: Herder,
        cluster_id: Callable[[], str | None],
        address: Callable[[], str],
        loggers: Loggers,
    ) -> None:
        self._herder = herder
        self._cluster_id = cluster_id
        self._address = address
        self.loggers = loggers

    # The worker

    async def root(self, _: Request) -> Response:
        return JSONResponse(
            {"version": __version__, "commit": "unknown", "kafka_cluster_id": self._cluster_id()}
        )

    async def health(self, _: Request) -> Response:
        if not self._herder.foreman.is_ready:
            return JSONResponse({"status": "starting", "message": "Worker is still starting up."}, 503)
        try:
            await asyncio.wait_for(self._herder.check_health(), _HEALTH_S)
        except (TimeoutError, ConnectError) as error:
            message = (
                "Worker was unable to handle this request and may be unable to handle other requests. "
                f"{error}"
            )
            return JSONResponse({"status": "unhealthy", "message": message.strip()}, SERVER_ERROR)
        message = "Worker has completed startup and is ready to handle requests."
        return JSONResponse({"status": "healthy", "message": message})

    # Connectors

    async def metrics(self, _: Request) -> Response:
        return Response(page(self._herder.foreman), media_type="text/plain; version=0.0.4")

    async def list_connectors(self, request: Request) -> Response:
        herder = self._herder
        expansions = request.query_params.getlist("expand")
        if not expansions:
            return JSONResponse(list(herder.configs.connectors))
        shown: dict[str, Any] = {}
        for name in herder.configs.connectors:
            try:
                row: dict[str, Any] = {}
                if "status" in expansions:
                    row["status"] = herder.shown_status(name)
                if "info" in expansions:
                    row["info"] = herder.shown_info(name)
            except RestError:
                # Just made or just removed: it has no status.
                continue
            shown[name] = row
        return JSONResponse(shown)

    async def create(self, request: Request) -> Response:
        body = await _object(request)
        unknown = sorted(body.keys() - {"name", "config", "initial_state"})
        if unknown:
            raise RestError(
                SERVER_ERROR, f'Unrecognized field "{unknown[0]}": name, config and initial_state are known'
            )
        target = None
        if (state := body.get("initial_state")) is not None:
            targets = {
                "RUNNING": TargetState.STARTED,
                "PAUSED": TargetState.PAUSED,
                "STOPPED": TargetState.STOPPED,
            }
            if str(state).upper() not in targets:
                raise RestError(SERVER_ERROR, f"initial_state={state}: there are {', '.join(targets)}")
            target = targets[str(state).upper()]
        given = body.get("name")
        if isinstance(given, dict | list):
            raise RestError(SERVER_ERROR, f"the name of a connector has to be a string, not {given}")
        name = str(given or "").strip()
        config = _config(body.get("config"))
        await self._herder.put_connector(name, _named(config, name), target=target, replace=False)
        return self._created(name)

    async def info(self, request: Request) -> Response:
        return JSONResponse(self._herder.shown_info(_name(request)))

    async def config(self, request: Request) -> Response:
        return JSONResponse(self._herder.shown_info(_name(request))["config"])

    async def put(self, request: Request) -> Response:
        name = _name(request)
        config = _named(_config(await _object(request)), name)
        if await self._herder.put_connector(name, config, replace=True):
            return self._created(name)
        return JSONResponse(self._herder.shown_info(name))

    async def patch(self, request: Request) -> Response:
        name = _name(request)
        changes = _config(await _object(request))
        await self._herder.patch_connector(name, changes)
        return JSONResponse(self._herder.shown_info(name))

    async def delete(self, request: Request) -> Response:
        await self._herder.delete_connector(_name(request))
        return Response(status_code=204)

    async def status(self, request: Request) -> Response:
        return JSONResponse(self._herder.shown_status(_name(request)))

    async def logs(self, request: Request) -> Response:
        """Not a route of Kafka's: the newest lines of a connector and its tasks, wherever they run."""
        name = _name(request)
        here = self._address()
        lines = [line.shown(here) for line in self._herder.lines_of(name)]
        missing: dict[str, str] = {}
        if "forward" not in request.query_params:
            others = sorted(self._herder.workers_of(name) - {here})
            told = await asyncio.gather(*(asyncio.to_thread(_lines_at, other, name) for other in others))
            for other, found in zip(others, told, strict=True):
                if isinstance(found, str):
                    missing[other] = found
                else:
                    lines += found
        lines.sort(key=lambda line: line["time_ms"])
        return JSONResponse({"name": name, "lines": lines[-LINES_MAX:], "missing": missing})

    async def pause(self, request: Request) -> Response:
        await self._herder.set_target(_name(request), TargetState.PAUSED)
        return Response(status_code=202)

    async def resume(self, request: Request) -> Response:
        await self._herder.set_target(_name(request), TargetState.STARTED)
        return Response(status_code=202)

    async def stop(self, request: Request) -> Response:
        await self._herder.set_target(_name(request), TargetState.STOPPED)
        return Response(status_code=204)

    async def restart(self, request: Request) -> Response:
        name = _name(request)
        include_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        if not include_tasks and not only_failed:
            await self._herder.restart_unit(name)
            return Response(status_code=204)
        answer = await self._herder.restart(RestartAsked(name, include_tasks, only_failed))
        return JSONResponse(answer, 202)

    def _created(self, name: str) -> Response:
        location = f"http://{self._address()}/connectors/{quote(name, safe='')}"
        return JSONResponse(self._herder.shown_info(name), 201, headers={"Location": location})

    # Tasks

    async def tasks(self, request: Request) -> Response:
        return JSONResponse(self._herder.shown_tasks(_name(request)))

    async def task_status(self, request: Request) -> Response:
        task = _task(request)
        status = self._herder.statuses.tasks.get(task)
        if status is None:
            raise not_found(f"No status found for task {task}")
        return JSONResponse({"id": task.task, **status.shown()})

    async def restart_task(self, request: Request) -> Response:
        await self._herder.restart_unit(_task(request))
        return Response(status_code=204)

    # Offsets and topics

    async def offsets(self, request: Request) -> Response:
        return JSONResponse(await self._herder.shown_offsets(_name(request)))

    async def alter_offsets(self, request: Request) -> Response:
        wanted = read_wanted(await _object(request))
        return JSONResponse({"message": await self._herder.alter_offsets(_name(request), wanted)})

    async def reset_offsets(self, request: Request) -> Response:
        return JSONResponse({"message": await self._herder.alter_offsets(_name(request), None)})

    async def topics(self, request: Request) -> Response:
        self._require_tracking()
        name = _name(request)
        return JSONResponse({name: {"topics": sorted(self._herder.statuses.topics.get(name, ()))}})

    async def reset_topics(self, request: Request) -> Response:
        self._require_tracking()
        if not self._herder.settings["topic.tracking.allow.reset"]:
            raise RestError(_FORBIDDEN, "Topic tracking reset is disabled.")
        await self._herder.reset_topics(_name(request))
        return Response(status_code=202)

    def _require_tracking(self) -> None:
        if not self._herder.settings["topic.tracking.enable"]:
            raise RestError(_FORBIDDEN, "Topic tracking is disabled.")

    # Plugins

    async def plugins(self, request: Request) -> Response:
        only = request.query_params.get("connectorsOnly", "true").lower() != "false"
        kinds = (Kind.SINK, Kind.SOURCE) if only else tuple(Kind)
        listed = [each for kind in kinds for each in self._herder.plugins.of(kind)]
        rows = [{"class": each.name, "type": each.kind.value, "version": each.version} for each in listed]
        return JSONResponse(rows)

    async def plugin_config(self, request: Request) -> Response:
        settings = self._herder.validator.plugin_settings(_part(request, "plugin"))
        return JSONResponse([setting.described() for setting in settings])

    async def validate(self, request: Request) -> Response:
        plugin, config = _part(request, "plugin"), _config(await _object(request))
        included = config.get(CONNECTOR_CLASS)
        if included is not None and not _without_suffix(included).endswith(_without_suffix(plugin)):
            raise bad_request(f"Included connector type {included} does not match request type {plugin}")
        try:
            validation = await asyncio.to_thread(self._herder.validator.validate, config)
        except RestError as error:
            raise RestError(SERVER_ERROR, f"{_BAD_REQUEST_CLASS}: {error}") from None
        return JSONResponse(validation.described())

    # What there is to ask

    async def api_page(self, _: Request) -> Response:
        return HTMLResponse(openapi.page())

    async def api_document(self, _: Request) -> Response:
        return JSONResponse(openapi.described())

    # Loggers

    async def list_loggers(self, _: Request) -> Response:
        return JSONResponse(self.loggers.all())

    async def logger(self, request: Request) -> Response:
        name = _part(request, "logger")
        found = self.loggers.get(name)
        if found is None:
            raise not_found(f"Logger {name} not found.")
        return JSONResponse(found)

    async def set_logger(self, request: Request) -> Response:
        name, level = _part(request, "logger"), (await _object(request)).get("level")
        if level is None:
            raise bad_request("Desired 'level' parameter was not specified in request.")
        if not self.loggers.is_level(str(level)):
            raise not_found(f"invalid log level '{level}'.")
        if request.query_params.get("scope", "worker").lower() == "cluster":
            await self._herder.set_cluster_logger(name, str(level).upper())
            return Response(status_code=204)
        return JSONResponse(self.loggers.set(name, str(level)))


def _part(request: Request, name: str) -> str:
    """Of the path."""
    return unquote(request.path_params[name])


def _name(request: Request) -> str:
    return _part(request, "name")


def _task(request: Request) -> TaskId:
    number = _part(request, "task")
    if not (number.isascii() and number.isdigit() and len(number) <= _TASK_DIGITS_MAX):
        raise HTTPException(NOT_FOUND, "Not Found")
    return TaskId(_name(request), int(number))


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


async def _object(request: Request) -> dict[str, Any]:
    """Kafka answers what is no JSON, or other JSON than expected, with 500."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _BODY_BYTES_MAX:
            raise RestError(_TOO_LARGE, f"the request is larger than {_BODY_BYTES_MAX} bytes")
    try:
        found = json.loads(data)
        # JSON can name halves of characters, which can be neither stored nor answered.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RestError(SERVER_ERROR, f"the request is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RestError(SERVER_ERROR, "the request has to be a JSON object")
    return found


def _config(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise RestError(SERVER_ERROR, "a configuration has to be a JSON object of names and values")
    return {name: value if value is None else _as_text(value) for name, value in given.items()}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _named(config: dict[str, Any], name: str) -> dict[str, Any]:
    included = config.get(NAME)
    if included is not None and included != name:
        raise bad_request(
            f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"
        )
    return {**config, NAME: name}


def _without_suffix(name: str) -> str:
    return name.removesuffix("Connector") or name
