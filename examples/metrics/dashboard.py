"""A page with all hosts: the last minute of each, and what is alarming.

python dashboard.py --bootstrap-server localhost:9092 --port 8095
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from ottla.streams import TableView

MINUTES, ALERTS = "host-minutes", "host-alerts"
PAGE = """<!doctype html><meta charset="utf-8"><title>Hosts</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
  table { width: 100%; border-collapse: collapse } td { padding: .3rem .6rem .3rem 0 }
  tr + tr td { border-top: 1px solid #8884 } .raised { color: #c62a2f; font-weight: 600 }
  #hosts tr:first-child, small { opacity: .65 } small { margin-left: .5rem }
  meter { width: 9rem; margin-right: .6rem }
</style>
<h1>Hosts</h1><table id="hosts"></table><h2>Alerts</h2><table id="alerts"></table>
<script type="module">
function row(cells, kind) {
  const row = document.createElement("tr");
  row.className = kind ?? "";
  for (const cell of cells) {
    const place = document.createElement("td");
    place.append(cell);
    row.append(place);
  }
  return row;
}
function meter(mean, highest) {
  const bar = document.createElement("meter"), most = document.createElement("small");
  const all = new DocumentFragment();
  Object.assign(bar, { max: 100, high: 80, optimum: 0, value: mean });
  most.append(`up to ${highest.toFixed()} %`);
  all.append(bar, `${mean.toFixed()} %`, most);
  return all;
}
async function look() {
  const { hosts, alerts } = await (await fetch("/data")).json();
  const raised = alerts.filter(({ state }) => state === "raised");
  const alarming = new Set(raised.map(({ what }) => what.split("/")[0]));
  document.querySelector("#hosts").replaceChildren(row(["host", "cpu, this minute", "memory"]),
    ...hosts.map(({ host, mean, highest }) =>
      row([host, meter(mean.cpu, highest.cpu), meter(mean.memory, highest.memory)],
        alarming.has(host) ? "raised" : "")));
  const none = alerts.length ? [] : [row(["none"])];
  document.querySelector("#alerts").replaceChildren(...none,
    ...alerts.map(({ what, state, value, at }) =>
      row([what, state, `${value} %`, new Date(at).toLocaleTimeString()], state)));
}
setInterval(look, 1000);
look();
</script>
"""


def app(bootstrap_servers: str) -> Starlette:
    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        with ExitStack() as stack:
            for name in (MINUTES, ALERTS):
                view = TableView(bootstrap_servers, name, key=str, value=dict)
                setattr(service.state, name.replace("-", "_"), stack.enter_context(view))
            yield

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    async def data(request: Request) -> JSONResponse:
        state = request.app.state
        hosts = [{"host": entry.key, **entry.value} for entry in state.host_minutes.all()]
        alerts = [
            {"what": entry.key, "at": entry.timestamp_ms, **entry.value} for entry in state.host_alerts.all()
        ]
        return JSONResponse({"hosts": hosts, "alerts": alerts})

    return Starlette(routes=[Route("/", page), Route("/data", data)], lifespan=life)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=8095)
    given = parser.parse_args()
    uvicorn.run(app(given.bootstrap_server), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
