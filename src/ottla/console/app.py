"""The console as an ASGI application: which address leads to which operation or page."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.console.api.all import FAMILIES
from ottla.console.asked import read_asked, written_down
from ottla.console.audit import note_change
from ottla.console.clusters import Cluster, ClusterSettings
from ottla.console.endpoints import Endpoint
from ottla.console.guard import Guard, Tokens, path_values
from ottla.console.html import link
from ottla.console.openapi import BASE, document
from ottla.console.pages.all import PAGES
from ottla.console.pages.api import api_view
from ottla.console.pages.layout import Surroundings, page_html, problem_view
from ottla.console.pages.page import Page
from ottla.console.problems import EXPECTED, Refused, problem_of

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
BODY_BYTES_MAX = 16 << 20
NOBODY = "-"

Handle = Callable[[Request], Awaitable[Response]]


class Console:
    """Clients of clusters live as long as the event loop that serves."""

    def __init__(self, settings: Sequence[ClusterSettings], user_header: str | None) -> None:
        self._settings = settings
        self._user_header = user_header
        self.clusters: dict[str, Cluster] = {}
        self.tokens = Tokens()
        self.document = document()

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.clusters = {each.name: Cluster(each) for each in self._settings}
        try:
            yield
        finally:
            for cluster in self.clusters.values():
                cluster.close()

    # The API

    def operation(self, endpoint: Endpoint[Any]) -> Handle:
        async def handle(request: Request) -> Response:
            try:
                cluster, texts = self._cluster(request)
                if endpoint.changes:
                    return _answered(await self._change(endpoint, cluster, request, texts))
                asked = read_asked(endpoint.asked, {**texts, **request.query_params}, {})
                return _answered(await endpoint(cluster, asked))
            except Exception as error:
                return _refused(error)

        return handle

    async def _change(
        self, endpoint: Endpoint[Any], cluster: Cluster, request: Request, texts: dict[str, str]
    ) -> Any:
        shown: dict[str, Any] = dict(texts)
        outcome = "failed"
        try:
            self.tokens.check(request)
            if cluster.read_only:
                raise Refused("this console only looks at the cluster; it was started with --read-only", 403)
            asked = read_asked(endpoint.asked, texts, await _body(request))
            shown = written_down(asked)
            try:
                answer = await endpoint(cluster, asked)
            finally:
                cluster.changed()
            outcome = "done"
            return answer
        except Exception as error:
            problem = problem_of(error)
            outcome = f"refused: {problem.code or problem.text}"
            raise
        finally:
            if not (outcome == "done" and shown.get("preview") is not False and "preview" in shown):
                note_change(
                    who=self._who(request),
                    address=request.client.host if request.client else NOBODY,
                    cluster=cluster.name,
                    what=endpoint.answer.__name__,
                    asked=shown,
                    outcome=outcome,
                )

    # Pages

    def page(self, page: Page[Any]) -> Handle:
        async def handle(request: Request) -> Response:
            status = 200
            cluster = self.clusters.get(path_values(request.scope).get("cluster", ""))
            try:
                cluster, texts = self._cluster(request)
                asked = read_asked(page.asked, {**texts, **request.query_params}, {})
                view = await page.render(cluster, asked)
            except Exception as error:
                problem = problem_of(error)
                _log_mistake(error)
                status, view = problem.status, problem_view(problem)
            return HTMLResponse(page_html(view, self._surroundings(request, cluster)), status)

        return handle

    async def api_page(self, request: Request) -> Response:
        return HTMLResponse(page_html(api_view(self.document), self._surroundings(request, None)))

    async def api_document(self, _: Request) -> Response:
        return JSONResponse(self.document)

    async def token(self, request: Request) -> Response:
        return JSONResponse({"token": self.tokens.of(request.scope["ottla.browser"])})

    async def list_clusters(self, _: Request) -> Response:
        listed = [
            {"name": cluster.name, "bootstrap": cluster.settings.bootstrap, "readOnly": cluster.read_only}
            for cluster in self.clusters.values()
        ]
        return JSONResponse({"clusters": listed})

    async def home(self, _: Request) -> Response:
        return RedirectResponse(link("c", next(iter(self.clusters))), 302)

    async def lost(self, request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        refused = Refused(f"there is nothing at {request.url.path}", status)
        if request.url.path.startswith("/api"):
            return _refused(refused)
        view = problem_view(problem_of(refused))
        return HTMLResponse(page_html(view, self._surroundings(request, None)), status)

    def _surroundings(self, request: Request, cluster: Cluster | None) -> Surroundings:
        return Surroundings(
            cluster,
            tuple(self.clusters),
            self.tokens.of(request.scope["ottla.browser"]),
            request.cookies.get("ottla_theme", ""),
        )

    def _cluster(self, request: Request) -> tuple[Cluster, dict[str, str]]:
        texts = path_values(request.scope)
        name = texts.pop("cluster")
        if name not in self.clusters:
            raise Refused(f"there is no cluster {name}; there are: {', '.join(self.clusters)}", 404)
        return self.clusters[name], texts

    def _who(self, request: Request) -> str:
        return request.headers.get(self._user_header, NOBODY) if self._user_header else NOBODY


def console_app(
    settings: Sequence[ClusterSettings], *, names: Collection[str] = (), user_header: str | None = None
) -> ASGIApp:
    """`names` are those it may be asked for under, besides localhost; `user_header` is a proxy's."""
    console = Console(settings, user_header)
    routes: list[Route | Mount] = [
        Route("/", console.home),
        Route("/api", console.api_page),
        Route("/api/openapi.json", console.api_document),
        Route("/api/token", console.token),
        Route("/api/clusters", console.list_clusters),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    for endpoints in FAMILIES.values():
        for endpoint in endpoints:
            routes.append(Route(BASE + endpoint.path, console.operation(endpoint), methods=[endpoint.method]))
    routes += [Route("/c/{cluster}" + page.path, console.page(page)) for page in PAGES]
    handlers: dict[Any, Any] = {404: console.lost, 405: console.lost}
    return Guard(Starlette(routes=routes, lifespan=console.lifespan, exception_handlers=handlers), names)


async def _body(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise Refused(f"the request is larger than {BODY_BYTES_MAX} bytes", 413)
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("the body must be an object")
    return body


def _answered(answer: Any) -> Response:
    return answer if isinstance(answer, Response) else JSONResponse(answer)


def _refused(error: Exception) -> Response:
    problem = problem_of(error)
    _log_mistake(error)
    return JSONResponse({"error": problem.text, "code": problem.code}, problem.status)


def _log_mistake(error: Exception) -> None:
    if not isinstance(error, EXPECTED):
        log.error("a request failed", exc_info=error)
