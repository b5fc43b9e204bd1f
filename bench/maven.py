"""Jars through Maven, into a cache beside the project; one fetch at a time per machine."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

JAVA_MAJOR_MIN = 17
FETCH_TIMEOUT_S = 600
CACHE = Path(__file__).resolve().parent.parent / ".cache"

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class PeerUnavailable(Exception):
    """A peer cannot be had on this machine; the text says what is missing."""


def fetch_jars(home: Path, title: str, *artifacts: str, alone: bool = False) -> Path:
    """`artifacts` are group:artifact:version; they and what they need at run time end up in the result.

    `alone` leaves out what they need, for parts of something that has the rest.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _fetch_into(home, title, artifacts, ALONE if alone else "")
    return home / "libs"


def _fetch_into(home: Path, title: str, artifacts: tuple[str, ...], exclusions: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"mvn is not installed, so the jars of {title} cannot be fetched")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    dependencies = "\n".join(DEPENDENCY.format(*artifact.split(":"), exclusions) for artifact in artifacts)
    (home / "pom.xml").write_text(POM.format(dependencies=dependencies))
    print(f"fetching {title} through Maven …", file=sys.stderr)
    argv = [maven, "-B", "-q", "-Dstyle.color=never", "-f", str(home / "pom.xml")]
    argv += ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not finish within {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        complaint = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no message")
        raise PeerUnavailable(f"Maven could not fetch {title}: {complaint}")
    (home / "complete").touch()


def find_java(title: str) -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if java is None:
        raise PeerUnavailable(f"java is not installed; {title} needs {JAVA_MAJOR_MIN} or newer")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    if not found or int(found[1]) < JAVA_MAJOR_MIN:
        version = answer.splitlines()[0] if answer else "no version"
        raise PeerUnavailable(f"{title} needs Java {JAVA_MAJOR_MIN} or newer, found {version}")
    return java
