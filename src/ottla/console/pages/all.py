"""All pages about a cluster."""

from __future__ import annotations

from typing import Any

from ottla.console.pages import access, groups, overview, records, topics, transactions
from ottla.console.pages.page import Page

PAGES: tuple[Page[Any], ...] = (
    *overview.PAGES,
    *topics.PAGES,
    *records.PAGES,
    *groups.PAGES,
    *transactions.PAGES,
    *access.PAGES,
)
