"""All pages about a cluster."""

from __future__ import annotations

from typing import Any

from ottla.console.pages import (
    access,
    connectors,
    groups,
    overview,
    pipelines,
    placement,
    records,
    topics,
    transactions,
)
from ottla.console.pages.page import Page

PAGES: tuple[Page[Any], ...] = (
    *overview.PAGES,
    *placement.PAGES,
    *topics.PAGES,
    *records.PAGES,
    *groups.PAGES,
    *transactions.PAGES,
    *connectors.PAGES,
    *pipelines.PAGES,
    *access.PAGES,
)
