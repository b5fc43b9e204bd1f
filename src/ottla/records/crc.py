"""CRC-32C, as record batches and other stored things carry it.

`import crc32c` looks up its own version, for which Python loads how to read packages, mail headers and ZIP
files: two megabytes, and a tenth of the time a broker takes to start. Its compiled part does without.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _compiled() -> Callable[..., int]:
        package = PathFinder.find_spec("crc32c")
        places = None if package is None else package.submodule_search_locations
        found = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
        if found is None or found.loader is None:
            from crc32c import crc32c

            return crc32c
        module = module_from_spec(found)
        found.loader.exec_module(module)
        return module.crc32c

    crc32c = _compiled()

__all__ = ["crc32c"]
