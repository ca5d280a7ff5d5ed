"""What is installed is what is in the repository, no more and no less."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import netdoctor
from netdoctor.compat import tomllib
from tests.repo.wheels import ROOT, copy_sources


def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def folders_with_code() -> set[str]:
    """Dotted names of the folders under netdoctor/, checks/ and tui/ that hold an __init__.py."""
    names = set()
    for top, prefix in (("netdoctor", "netdoctor"), ("checks", "netdoctor.checks"), ("tui", "netdoctor.tui")):
        for folder, _, files in os.walk(ROOT / top):
            if "__init__.py" in files:
                inside = Path(folder).relative_to(ROOT / top).parts
                names.add(".".join((prefix, *inside)))
    return names


def test_packages_list_names_every_folder_with_code() -> None:
    setuptools = pyproject()["tool"]["setuptools"]  # type: ignore[index]  # the file is ours
    assert set(setuptools["packages"]) == folders_with_code()


@pytest.mark.parametrize("name", ["checks", "tui"])
def test_top_level_folders_are_linked_into_the_package(name: str) -> None:
    link = ROOT / "netdoctor" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"


def test_a_check_lies_in_the_folder_of_its_family() -> None:
    beside = [p.name for p in (ROOT / "checks").glob("*.py")]
    assert beside == ["__init__.py"]


def test_version_is_written_once_and_the_same() -> None:
    assert pyproject()["project"]["version"] == netdoctor.__version__  # type: ignore[index]  # ours


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of the tracked files so that no build folder is left here."""
    source = copy_sources(tmp_path_factory.mktemp("source") / "netdoctor")
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--quiet"]
    build += ["--no-build-isolation"]
    done = subprocess.run(
        [*build, "--wheel-dir", str(target), str(source)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("netdoctor-*.whl")
    return zipfile.ZipFile(built)


def test_wheel_holds_every_source_file(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    wanted = {
        ("netdoctor/" + str(path.relative_to(ROOT))).replace("netdoctor/netdoctor/", "netdoctor/")
        for top in ("netdoctor", "checks")
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".json", ".c") or path.name == "py.typed"
    }
    assert wanted - names == set()
    assert "netdoctor/checks/host/shm.py" in names
    assert "netdoctor/py.typed" in names


def test_wheel_holds_the_report_schema(wheel: zipfile.ZipFile) -> None:
    assert "netdoctor/report/schema.json" in wheel.namelist()


def test_wheel_holds_the_labs_c_sources(wheel: zipfile.ZipFile) -> None:
    assert [n for n in wheel.namelist() if n.startswith("netdoctor/lab/") and n.endswith(".c")]


def test_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/", 1)[0] for name in wheel.namelist()}
    assert len(tops) == 2
    assert "netdoctor" in tops
    assert not [n for n in wheel.namelist() if n.endswith(".pyc") or "test" in n.rsplit("/", 1)[-1]]


def test_dockerfile_and_ci_share_their_steps() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert "docker-install.sh build /src /wheels" in dockerfile
    assert "docker-install.sh install /tmp/wheels" in dockerfile
    assert "USER 10001" in dockerfile
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "docker-install.sh build" in ci
    assert "docker-install.sh install" in ci
