"""The console as an ASGI application: which address leads to which operation or page."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ottla.console.api.all import FAMILIES
from ottla.console.asked import Secret, read_asked, written_down
from ottla.console.audit import note_change
from ottla.console.clusters import Cluster, ClusterSettings
from ottla.console.endpoints import Endpoint
from ottla.console.guard import Guard, Tokens, path_values
from ottla.console.html import link
from ottla.console.openapi import BASE, document
from ottla.console.pages.all import PAGES
from ottla.console.pages.api import api_view
from ottla.console.pages.layout import Surroundings, page_html, problem_view
from ottla.console.pages.login import login_view
from ottla.console.pages.page import Page
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.console.proxy import LOOPBACK, USER, ProxyUser
from ottla.console.sessions import COOKIE, MECHANISMS, LogInFirst, Session, Sessions

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
BODY_BYTES_MAX = 16 << 20
LOG_IN_BYTES_MAX = 64 << 10
"""Of whoever is nobody yet."""
BODY_SECONDS_MAX = 60.0
NOBODY = "-"

Handle = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class LogIn:
    cluster: Annotated[str, "which of them"]
    user: Annotated[str, "as the cluster knows it"]
    password: Annotated[str, "the user's", Secret]
    mechanism: Annotated[str, "of SASL"] = MECHANISMS[0]
    onwards: Annotated[str, "the page that was asked for"] = ""


class Console:
    """Clients of clusters live as long as the event loop that serves."""

    def __init__(self, settings: Sequence[ClusterSettings]) -> None:
        self._settings = {each.name: each for each in settings}
        self._shared: dict[str, Cluster] = {}
        """Those that are looked at with the console's own credentials."""
        self.sessions = Sessions()
        self.tokens = Tokens()
        self.document = document()

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._shared = {name: Cluster(each) for name, each in self._settings.items() if not each.login}
        try:
            yield
        finally:
            self.sessions.close()
            for cluster in self._shared.values():
                cluster.close()

    # The API

    def operation(self, endpoint: Endpoint[Any]) -> Handle:
        async def handle(request: Request) -> Response:
            try:
                cluster, texts = self._cluster(request)
                if endpoint.changes:
                    return _answered(await self._change(endpoint, cluster, request, texts))
                if endpoint.has_body:
                    self.tokens.check(request)
                    asked = read_asked(endpoint.asked, texts, await _body(request))
                    return _answered(await endpoint(cluster, asked))
                asked = read_asked(endpoint.asked, {**texts, **request.query_params}, {})
                return _answered(await endpoint(cluster, asked))
            except Exception as error:
                return _refused(error)

        return handle

    async def _change(
        self, endpoint: Endpoint[Any], cluster: Cluster, request: Request, texts: dict[str, str]
    ) -> Any:
        shown: dict[str, Any] = dict(texts)
        outcome, is_preview = "failed", False
        try:
            self.tokens.check(request)
            if cluster.read_only:
                raise Refused("this console only looks at the cluster; it was started with --read-only", 403)
            asked = read_asked(endpoint.asked, texts, await _body(request))
            shown = written_down(asked)
            is_preview = getattr(asked, "preview", False)
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
            if not (outcome == "done" and is_preview):
                what = endpoint.answer.__name__
                self._note(request, self._who(request), cluster.name, what, shown, outcome)

    # Pages

    def page(self, page: Page[Any]) -> Handle:
        async def handle(request: Request) -> Response:
            status = 200
            cluster: Cluster | None = None
            try:
                cluster, texts = self._cluster(request)
                asked = read_asked(page.asked, {**texts, **request.query_params}, {})
                view = await page.render(cluster, asked)
            except LogInFirst as error:
                onwards = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(link("login", cluster=error.cluster, onwards=onwards), 303)
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
            {
                "name": each.name,
                "bootstrap": each.bootstrap,
                "readOnly": each.read_only,
                "login": each.login,
            }
            for each in self._settings.values()
        ]
        return JSONResponse({"clusters": listed})

    async def home(self, _: Request) -> Response:
        return RedirectResponse(link("c", next(iter(self._settings))), 302)

    # Logging in and out

    async def login_page(self, request: Request) -> Response:
        try:
            settings = self._with_login(request.query_params.get("cluster", ""))
        except Refused as error:
            refusal = problem_view(problem_of(error))
            return HTMLResponse(page_html(refusal, self._surroundings(request, None)), error.status)
        view = login_view(settings, request.query_params.get("onwards", ""))
        return HTMLResponse(page_html(view, self._surroundings(request, None)))

    async def log_in(self, request: Request) -> Response:
        cluster, user, outcome = NOBODY, NOBODY, "failed"
        try:
            self.tokens.check(request)
            asked = read_asked(LogIn, {}, await _body(request, LOG_IN_BYTES_MAX))
            cluster, user = asked.cluster, asked.user
            settings = self._with_login(asked.cluster)
            key = await self.sessions.log_in(
                request.cookies.get(COOKIE),
                settings,
                asked.user,
                asked.password,
                asked.mechanism,
                _address(request),
            )
            outcome = "done"
        except Exception as error:
            outcome = f"refused: {problem_of(error).text}"
            return _refused(error)
        finally:
            self._note(request, user, cluster, "log_in", {}, outcome)
        # Only to a page of the cluster: what comes in an address may have been written by anybody.
        home = link("c", settings.name)
        to = asked.onwards if asked.onwards.startswith(home) else home
        answer = JSONResponse({"user": asked.user, "to": to})
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, key, httponly=True, samesite="strict", secure=secure)
        return answer

    async def log_out(self, request: Request) -> Response:
        try:
            self.tokens.check(request)
        except Refused as error:
            return _refused(error)
        session = self._session(request)
        self.sessions.log_out(request.cookies.get(COOKIE))
        if session is not None:
            self._note(request, session.user, ",".join(session.clusters), "log_out", {}, "done")
        answer = JSONResponse({"to": "/"})
        answer.delete_cookie(COOKIE)
        return answer

    def _with_login(self, name: str) -> ClusterSettings:
        settings = self._settings.get(name)
        if settings is None or not settings.login:
            there_are = ", ".join(each.name for each in self._settings.values() if each.login) or "none"
            raise Refused(f"{name!r} is no cluster that one logs in to; there are: {there_are}", 404)
        return settings

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
            tuple(self._settings),
            self._session(request) is not None,
            self._who(request),
            self.tokens.of(request.scope["ottla.browser"]),
            request.cookies.get("ottla_theme", ""),
        )

    def _cluster(self, request: Request) -> tuple[Cluster, dict[str, str]]:
        texts = path_values(request.scope)
        name = texts.pop("cluster")
        if name not in self._settings:
            raise Refused(f"there is no cluster {name}; there are: {', '.join(self._settings)}", 404)
        session = self._session(request)
        cluster = self._shared.get(name) or (session.clusters.get(name) if session else None)
        if cluster is None:
            raise LogInFirst(name)
        return cluster, texts

    def _session(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(COOKIE))

    def _who(self, request: Request) -> str:
        """Whom the brokers let in, or a proxy in front."""
        session = self._session(request)
        return session.user if session is not None else request.scope.get(USER, NOBODY)

    def _note(
        self, request: Request, who: str, cluster: str, what: str, asked: dict[str, Any], outcome: str
    ) -> None:
        note_change(
            who=who, address=_address(request), cluster=cluster, what=what, asked=asked, outcome=outcome
        )


def console_app(
    settings: Sequence[ClusterSettings],
    *,
    names: Collection[str] = (),
    user_header: str | None = None,
    proxies: Collection[str] = (),
) -> ASGIApp:
    """`names` are those it may be asked for under, besides localhost. In `user_header` a proxy says who asks;
    it is on this machine, or at one of the addresses `proxies`."""
    console = Console(settings)
    routes: list[Route | Mount] = [
        Route("/", console.home),
        Route("/api", console.api_page),
        Route("/api/openapi.json", console.api_document),
        Route("/api/token", console.token),
        Route("/api/clusters", console.list_clusters),
        Route("/api/login", console.log_in, methods=["POST"]),
        Route("/api/logout", console.log_out, methods=["POST"]),
        Route("/login", console.login_page),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    for endpoints in FAMILIES.values():
        for endpoint in endpoints:
            routes.append(Route(BASE + endpoint.path, console.operation(endpoint), methods=[endpoint.method]))
    routes += [Route("/c/{cluster}" + page.path, console.page(page)) for page in PAGES]
    handlers: dict[Any, Any] = {404: console.lost, 405: console.lost}
    guarded: Any = Guard(
        Starlette(routes=routes, lifespan=console.lifespan, exception_handlers=handlers), names
    )
    believed = (*LOOPBACK, *proxies)
    # Of whom it asks for, and by which scheme, a proxy tells, too.
    app: Any = ProxyHeadersMiddleware(guarded, trusted_hosts=list(believed))
    return app if user_header is None else ProxyUser(app, user_header, believed)


def _address(request: Request) -> str:
    return request.client.host if request.client else NOBODY


async def _body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> dict[str, Any]:
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for chunk in request.stream():
                data += chunk
                if len(data) > bytes_max:
                    raise Refused(f"the request is larger than {bytes_max} bytes", 413)
    except TimeoutError:
        raise Refused(f"the request has not come in {BODY_SECONDS_MAX:g} s", 408) from None
    except ClientDisconnect:
        raise Refused("the request was broken off") from None
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
