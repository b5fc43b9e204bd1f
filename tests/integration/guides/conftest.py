"""Environments with nothing but the wheel and what its extras require, each made once per worker."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import pytest
from tests.integration.guides.fresh_environment import build_wheel, fresh_environment


class Environment(Protocol):
    def __call__(self, extras: set[str], also: Collection[str] = ()) -> Path:
        """Where the executables are of an environment with these extras, and other packages besides."""


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made: dict[frozenset[str], Path] = {}
    wheels: list[Path] = []

    def get(extras: set[str], also: Collection[str] = ()) -> Path:
        if not wheels:
            wheels.append(build_wheel(tmp_path_factory.mktemp("wheel")))
        key = frozenset(extras.union(also))
        if key not in made:
            directory = tmp_path_factory.mktemp("environment") / "env"
            made[key] = fresh_environment(directory, wheels[0], extras, also)
        return made[key]

    return get
