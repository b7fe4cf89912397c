"""What the tests of CUDA memory share."""

import subprocess
import sys
import textwrap

import pytest

import cistern.cuda

needs_device = pytest.mark.skipif(not cistern.cuda.available(), reason="there is no CUDA device")


def run(program):
    """Runs a program in a process of its own: an allocator is chosen once."""
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                            text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout
