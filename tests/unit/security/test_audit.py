from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.runtime import Runtime, real_runtime
from ottla.security import audit as module
from ottla.security.audit import AuditLog
from ottla.security.authorizer import Verdict
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey

DENIED = Verdict(False, None, "DefaultDeny")


def note(log: AuditLog, name: str, verdict: Verdict = DENIED) -> None:
    log.note({"principal": "User:ann"}, ApiKey.FETCH, Operation.READ, AclResource.TOPIC, name, verdict)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def written(runtime: Runtime, path: Path, names: list[str], **limits: int) -> AuditLog:
    log = AuditLog(runtime, str(path), **{"bytes_max": 10_000, "files_max": 3, **limits})
    for name in names:
        note(log, name)
    await log.close()
    await runtime.close()
    return log


def test_files_are_rotated_by_size_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITTEN_AT_ONCE_MAX", 1)
    path = tmp_path / "audit.log"
    names = [str(number) for number in range(100)]
    asyncio.run(written(real_runtime(), path, names, bytes_max=1000))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    kept = [entry["resource"] for name in (".2", ".1", "") for entry in lines(Path(f"{path}{name}"))]
    assert kept == names[-len(kept) :]


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for name in ("a", "b"):
        asyncio.run(written(real_runtime(), path, [name]))
    assert [entry["resource"] for entry in lines(path)] == ["a", "b"]


@pytest.mark.parametrize("way", ["moved", "moved and made anew", "copied and cut", "removed"])
def test_it_goes_on_where_the_file_should_be_when_somebody_has_taken_it_away(
    tmp_path: Path, way: str
) -> None:
    path, kept = tmp_path / "audit.log", tmp_path / "kept.log"

    async def scenario() -> None:
        runtime = real_runtime()
        log = AuditLog(runtime, str(path), bytes_max=10_000, files_max=3)
        writing = asyncio.ensure_future(log.run())

        async def say(name: str) -> None:
            note(log, name)
            async with asyncio.timeout(20):
                while not path.exists() or f'"{name}"' not in path.read_text():
                    await asyncio.sleep(0.001)

        await say("before")
        match way:
            case "moved" | "moved and made anew":
                path.rename(kept)
                if way != "moved":
                    path.touch()
            case "copied and cut":
                shutil.copy(path, kept)
                path.write_text("")
            case _:
                path.unlink()
        await say("after")
        await say("later")
        writing.cancel()
        await log.close()
        await runtime.close()

    asyncio.run(scenario())
    assert [entry["resource"] for entry in lines(path)] == ["after", "later"]
    if way != "removed":
        assert [entry["resource"] for entry in lines(kept)] == ["before"]


def test_what_does_not_fit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    path = tmp_path / "audit.log"
    log = asyncio.run(written(real_runtime(), path, ["a", "b", "c", "d", "e"]))
    *entries, last = lines(path)
    assert [entry["resource"] for entry in entries] == ["a", "b", "c"]
    assert last["dropped"] == 2
    assert log.dropped_total == 2


def test_a_disk_that_fails_costs_lines_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = asyncio.run(written(real_runtime(), tmp_path / "not there" / "audit.log", ["a", "b"]))
    assert log.dropped_total == 2
    assert "the audit log cannot be written" in caplog.text


def test_what_is_allowed_is_wanted_of_some_apis() -> None:
    log = AuditLog(real_runtime(), "x", bytes_max=1, files_max=1, allowed=frozenset((ApiKey.CREATE_TOPICS,)))
    allowed = Verdict(True, None, "SuperUser")
    assert log.wants(ApiKey.FETCH, DENIED)
    assert log.wants(ApiKey.CREATE_TOPICS, allowed)
    assert not log.wants(ApiKey.FETCH, allowed)
