"""The set-up files agree with each other, and importing the package has no side effects."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SEPARATE = {"wandb", "mlflow"}  # extras that `make setup` leaves out, and that are not pinned
LARGEST = 400_000  # bytes, the limit of the pre-commit hook


def direct_dependencies() -> list[Requirement]:
    extras = [
        line
        for name, lines in PROJECT["optional-dependencies"].items()
        if name not in SEPARATE
        for line in lines
    ]
    return [Requirement(line) for line in PROJECT["dependencies"] + extras]


def pins(machine: str, python: str = "3.11", system: str = "Linux") -> dict[str, str]:
    """Return name -> version of the constraints that apply on one kind of machine."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return versions((line for line in lines if line and not line.startswith("#")), machine, python, system)


def versions(lines: Iterable[str], machine: str, python: str, system: str) -> dict[str, str]:
    """Return name -> version of those `lines`, each an exact requirement, that apply on one kind of machine."""
    found = {}
    platform = {"Linux": "linux", "Darwin": "darwin"}[system]
    environment = default_environment() | {
        "platform_machine": machine,
        "platform_system": system,
        "sys_platform": platform,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    for line in lines:
        constraint = Requirement(line)
        if constraint.marker is None or constraint.marker.evaluate(environment):
            name = canonicalize_name(constraint.name)
            (pin,) = constraint.specifier
            assert pin.operator == "==", f"{line} is no exact version"
            assert name not in found, f"{name} is pinned twice on {machine}"
            found[name] = pin.version
    return found


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    # Without the variables of the `make test` that may have started these tests.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    return subprocess.run(["make", "-C", folder, *arguments], capture_output=True, text=True, env=environment)


def tracked_files() -> list[Path]:
    """Return the files that git tracks, or would add with `git add --all`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this copy of the project is no git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]  # a deleted file is listed until it is committed


@pytest.mark.parametrize(
    ("machine", "system"), [("x86_64", "Linux"), ("aarch64", "Linux"), ("arm64", "Darwin")]
)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_every_direct_dependency_is_pinned_within_its_bounds(machine, system, python):
    pinned = pins(machine, python, system)
    for requirement in direct_dependencies():
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} has no pin on {machine}"
        assert pinned[name] in requirement.specifier, f"{requirement} excludes the pinned {pinned[name]}"


@pytest.mark.parametrize(
    ("machine", "torch", "torchvision"),
    [("x86_64", "2.14.1", "0.29.1"), ("arm64", "2.14.1", "0.29.1"), ("aarch64", "2.9.1", "0.24.1")],
)
def test_torch_is_pinned_for_each_kind_of_machine(machine, torch, torchvision):
    pinned = pins(machine)
    assert (pinned["torch"], pinned["torchvision"]) == (torch, torchvision)


def test_environment_yml_is_the_same_installation_as_the_makefile():
    *conda, by_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python, pip = (Requirement(line) for line in conda)
    assert (python.name, pip.name) == ("python", "pip")  # everything else comes from the pins
    options = dict(line.split(maxsplit=1) for line in by_pip["pip"])
    assert options.keys() == {"--constraint", "--editable"}
    makefile = (ROOT / "Makefile").read_text()
    assert f"--constraint {options['--constraint']} " in makefile
    listed = re.search(r"^EXTRAS := (\S+)$", makefile, re.M)[1]
    assert options["--editable"] == f".[{listed}]" and "--editable '.[$(EXTRAS)]'" in makefile
    extras = set(listed.split(","))
    assert extras == PROJECT["optional-dependencies"].keys() - SEPARATE


def test_python_versions_agree():
    conda = Requirement(yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][0]).specifier
    lowest, first_refused = re.search(
        r"\((\d+, \d+)\) <= sys.version_info < \((\d+, \d+)\)", (ROOT / "Makefile").read_text()
    ).groups()
    lowest, first_refused = (".".join(version.split(", ")) for version in (lowest, first_refused))
    assert conda == SpecifierSet(f">={lowest},<{first_refused}")
    assert SpecifierSet(PROJECT["requires-python"]) == SpecifierSet(f">={lowest}")


def test_makefile_lists_its_targets_by_default():
    listed = re.findall(r"^  make (\w+) +\w", make(ROOT).stdout, flags=re.MULTILINE)
    wanted = {"help", "setup", "figures", "docs", "test", "lint", "format", "benchmark", "lock", "clean"}
    assert set(listed) == wanted


def test_makefile_refuses_another_python_with_a_sentence(tmp_path):
    python = tmp_path / "python-old"
    python.write_text("#!/bin/sh\nexit 1\n")  # as the version check ends on Python 3.10
    python.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    refused = make(tmp_path, "setup", f"PYTHON={python}")
    assert refused.returncode != 0
    assert "Python 3.11 to 3.14 is needed" in refused.stdout
    assert not (tmp_path / ".venv").exists()


def test_ci_only_calls_make_test_once_there_is_a_browser():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    *start, browser, test = lines
    assert start == ["set -euo pipefail", 'cd "$(dirname "$0")/.."'] and test == "make test"
    assert browser.startswith("command -v chromium") and browser.endswith("|| true")


def test_commit_hooks_use_the_pinned_tools():
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = {hook["id"]: hook for hook in repositories[0]["hooks"]}
    assert hooks.keys() == {"nbstripout", "ruff-check", "ruff-format", "check-added-large-files"}
    assert all(hook["language"] == "system" for hook in hooks.values())
    for hook in ("ruff-check", "ruff-format"):
        assert "jupyter" in hooks[hook]["types_or"]
    assert f"--maxkb={LARGEST // 1000}" in hooks["check-added-large-files"]["entry"]


def test_no_large_file_is_tracked():
    large = {
        str(file.relative_to(ROOT)): size
        for file in tracked_files()
        if (size := file.stat().st_size) > LARGEST
    }
    assert not large


def test_no_path_of_one_machine_is_tracked():
    # Homes, work folders and folders of /tmp that whoever wrote the file had: nobody else has them.
    folder = re.compile(rb"(?<![\w.])/(?:root|home|Users|work|tmp/\w+)/\w")
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in tracked_files()
        if b"\0" not in (content := file.read_bytes())
        for number, line in enumerate(content.splitlines(), start=1)
        if folder.search(line)
    ]
    assert not found


def test_importing_the_package_does_nothing():
    code = """
import os, random, sys
environment, state, before = dict(os.environ), random.getstate(), set(sys.modules)
import spml_core
assert dict(os.environ) == environment, "the environment was changed"
assert random.getstate() == state, "a random generator was seeded"
assert set(sys.modules) - before == {"spml_core"}, sorted(set(sys.modules) - before)
print(spml_core.__version__)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert done.stdout.strip() == citation["version"]


def locked(machine: str, python: str, system: str) -> dict[str, str]:
    """Return name -> version of requirements.lock on one kind of machine, each with at least one hash."""
    entries = re.findall(
        r"^(\w.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", LOCK.read_text(), re.M
    )
    assert len(entries) == len(re.findall(r"^\w", LOCK.read_text(), re.M)), "an entry without hashes"
    return versions((entry for entry, _ in entries), machine, python, system)


@pytest.mark.parametrize(
    ("machine", "system"), [("x86_64", "Linux"), ("aarch64", "Linux"), ("arm64", "Darwin")]
)
@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_the_lock_has_the_versions_of_the_constraints(machine, system, python):
    pinned, hashed = pins(machine, python, system), locked(machine, python, system)
    cuda = {name for name in hashed if name.startswith(("nvidia-", "cuda-")) or name == "triton"}
    unpinned = hashed.keys() - pinned.keys() - cuda
    assert not unpinned, "pin these in constraints.txt: what a dependency has brought since"
    assert hashed.keys() >= {canonicalize_name(each.name) for each in direct_dependencies()}, (
        "renew: make lock"
    )
    assert {name: hashed[name] for name in hashed.keys() & pinned} == {
        name: pinned[name] for name in hashed.keys() & pinned
    }, "renew: make lock"
    assert not cuda or (machine, system) == ("x86_64", "Linux")


def test_the_lock_names_no_host():
    text = LOCK.read_text()
    assert not re.search(r"://|^-", text, re.M) and "@ " not in text


def test_a_changed_wheel_is_refused(tmp_path):
    """`pip install --require-hashes` takes a wheel with the hash that the file gives, and no other of that name."""
    wheel = tmp_path / "tabulate-0.10.0-py3-none-any.whl"
    (entry,) = re.findall(r"^tabulate==0\.10\.0 \\\n(?: +--hash=\S+(?: \\)?\n)+", LOCK.read_text(), re.M)

    def install(requirement: str) -> subprocess.CompletedProcess:
        requirements = tmp_path / "requirements.txt"
        requirements.write_text(requirement)
        options = [
            "--isolated",
            "--no-index",
            "--find-links",
            tmp_path,
            "--require-hashes",
            "-r",
            requirements,
        ]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            *options,
        ]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def write(code: str) -> str:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tabulate/__init__.py", code)
            folder = "tabulate-0.10.0.dist-info"
            archive.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: tabulate\nVersion: 0.10.0\n")
            archive.writestr(
                f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{folder}/RECORD", "")
        return f"tabulate==0.10.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"

    own = write("harmless = True")
    assert install(own).returncode == 0
    write("harmless = False")
    for requirement in (own, entry):
        refused = install(requirement)
        assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stderr, refused.stderr
