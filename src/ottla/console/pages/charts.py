"""Charts over the last hour. A page has their places; `charts.js` draws what the API answers, and goes on."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.console.html import Html, div, element, h2, p, section, span

_figure, _figcaption = element("figure"), element("figcaption")


def chart(title: str, source: str, series: Mapping[str, str], unit: str) -> Html:
    """`series` are fields of the answer of `source`, and what each is called."""
    return _figure(
        _figcaption(title),
        div(p("Measuring …", class_="quiet"), class_="plot"),
        div(
            [
                span(span(class_=f"swatch swatch-{at}"), name, " ", span("", class_="newest"))
                for at, name in enumerate(series.values())
            ],
            class_="key",
        ),
        class_="chart",
        data_source=source,
        data_series=",".join(series),
        data_names=",".join(series.values()),
        data_unit=unit,
    )


def traffic_charts(source: str) -> Html:
    return section(
        h2("Traffic"),
        div(
            chart("Records per second", source, {"recordsIn": "written", "recordsOut": "read"}, "/s"),
            chart("Bytes written per second", source, {"bytesIn": "written"}, "B/s"),
            class_="charts",
        ),
    )


def lag_charts(source: str) -> Html:
    return section(
        h2("Over time"),
        div(
            chart("Lag", source, {"lag": "records to read"}, ""),
            chart("Records read per second", source, {"recordsOut": "read"}, "/s"),
            class_="charts",
        ),
    )
