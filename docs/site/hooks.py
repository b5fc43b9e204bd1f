"""Makes pages of the documents as they are in the repository, where GitHub and editors show them as well.

Documents outside of docs/ become pages, links are made to fit, and the words behind the language of a code
block, which are for the tests that follow guides, become its title or go.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from mkdocs.structure.files import File, Files

# By their paths in the repository.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "bench.md",
    "examples/README.md": "examples/README.md",
    **{
        f"examples/{name}/README.md": f"examples/{name}/README.md"
        for name in (
            "streams",
            "orders",
            "logs",
            "activity",
            "metrics",
            "airline",
            "messaging",
            "ledger",
            "keyvalue",
            "container",
        )
    },
}
DOCS = "docs/"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
# What readers do with a block whose word is for the tests.
_TITLES = {
    "stays": "in a terminal of its own: it stays there",
    "again": "until it shows: what it asks for takes a moment",
}
_FENCE = re.compile(r"^```([a-z]+) +(\S.*)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    root = os.path.dirname(config["config_file_path"])
    for source, page in PAGES.items():
        with open(f"{root}/{source}", encoding="utf-8") as file:
            files.append(File.generated(config, page, content=file.read()))
    # Pictures of the examples, where their pages look for them.
    for picture in glob.glob("examples/*/*.png", root_dir=root):
        files.append(File(picture, root, config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    root = os.path.dirname(config["config_file_path"])
    shown_at = page.file.src_uri
    source = next((path for path, at in PAGES.items() if at == shown_at), DOCS + shown_at)

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if not os.path.exists(f"{root}/{path}"):
            return match[0]  # broken: mkdocs says so
        to = PAGES.get(path) or (path.removeprefix(DOCS) if path.startswith(DOCS) else None)
        if to is None:
            return text  # in the repository, not among the pages
        return f"[{text}]({os.path.relpath(to, os.path.dirname(shown_at) or '.')}{anchor})"

    return _FENCE.sub(_titled, _LINK.sub(link, markdown))


def _titled(match: re.Match[str]) -> str:
    words = match[2].split()
    file = next((word.removeprefix("file=") for word in words if word.startswith("file=")), None)
    title = file or next((_TITLES[word] for word in words if word in _TITLES), None)
    return f'```{match[1]} title="{title}"' if title else f"```{match[1]}"
