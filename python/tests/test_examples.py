"""The examples of docs/python.md run, and print what the page shows."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "example", sorted(EXAMPLES.glob("python_*.py")), ids=lambda path: path.stem
)
def test_the_example_prints_what_the_docs_show(example):
    printed = subprocess.run(
        [sys.executable, example], check=True, capture_output=True, text=True
    ).stdout
    expected = example.with_suffix(".out")
    if expected.exists():
        assert printed == expected.read_text()
