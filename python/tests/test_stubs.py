"""The type stubs say what the package has, and a typed program finds the types that it should."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cistern

TESTS = Path(__file__).parent
PACKAGE = Path(cistern.__file__).parent


def run(*command, expected=0):
    result = subprocess.run(
        [sys.executable, "-m", *map(str, command)], capture_output=True, text=True
    )
    assert result.returncode == expected, result.stdout + result.stderr
    return result.stdout


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_of_the_extension_is_the_one_that_nanobind_generates(tmp_path):
    pytest.importorskip("nanobind")
    pattern = TESTS.parent / "src" / "_core.pat"
    run("nanobind.stubgen", "-q", "-m", "cistern._core", "-P", "-p", pattern, "-O", tmp_path)
    generated, kept = tmp_path / "_core.pyi", PACKAGE / "_core.pyi"
    assert ast.dump(ast.parse(generated.read_text())) == ast.dump(ast.parse(kept.read_text()))


def test_the_stubs_agree_with_the_package(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("distributed")
    allowed = TESTS / "stubtest.allow"
    assert "no issues" in run("mypy.stubtest", "cistern", "--allowlist", allowed)


def test_a_typed_program_finds_the_types(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("distributed")
    program = TESTS / "typed_program.py"
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if re.search("  # [NE]: ", line)
    }

    output = run("mypy", "--strict", "--cache-dir", tmp_path, program, expected=1)

    found = dict(re.findall(r"^.*?\.py:(\d+): ((?:note|error): .*)$", output, re.MULTILINE))
    assert {int(number) for number in found} == set(expected), output
    for number, text in expected.items():
        kind, _, part = text.partition(": ")
        assert found[str(number)].startswith({"N": "note", "E": "error"}[kind]), output
        assert part in found[str(number)], output
