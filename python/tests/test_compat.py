"""Programs written for pycsa's and pydotcompute's pools run unchanged."""

import asyncio
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import cistern

without_device = pytest.mark.skipif(cistern.cuda_available(), reason="there is a CUDA device")


@pytest.fixture
def pydotcompute():
    cistern.compat.install("pydotcompute")
    from pydotcompute.core.memory_pool import MemoryPool

    MemoryPool._instance = None
    yield
    MemoryPool._instance = None


@without_device
def test_memory_pool_exists_once(pydotcompute):
    from pydotcompute.core.memory_pool import MemoryPool, configure_memory_pool, get_memory_pool

    pool = MemoryPool()
    assert pool is MemoryPool() is get_memory_pool() is MemoryPool._instance
    assert pool._initialized and not pool._enabled and not pool._cuda_available
    assert pool._initial_size_mb == 0 and pool._max_size_mb is None
    assert configure_memory_pool(max_size_mb=512, enable=False) is pool and not pool.enabled
    assert configure_memory_pool().enabled
    pool.set_limit(256)
    pool.set_limit(None)
    pool.free_all_blocks()
    pool.free_all_free()
    assert pool.get_stats().used_bytes == 0 and pool.get_pinned_stats().n_free_blocks == 0
    assert "MemoryPool" in repr(pool) and "enabled=True" in repr(pool)
    MemoryPool._instance = None
    assert MemoryPool() is not pool and not MemoryPool()._enabled


@without_device
def test_unified_buffer(pydotcompute):
    from pydotcompute.core.unified_buffer import BufferState, UnifiedBuffer
    from pydotcompute.exceptions import BufferNotAllocatedError, PyDotComputeError

    buffer = UnifiedBuffer((10,), dtype=np.float32, pinned=False)
    assert not buffer._pinned and not buffer._cuda_available
    with pytest.raises(BufferNotAllocatedError) as raised:
        buffer.host
    assert isinstance(raised.value, PyDotComputeError) and isinstance(raised.value, cistern.Error)
    buffer.copy_from(np.arange(10, dtype=np.float32))
    assert buffer.state == BufferState.HOST_DIRTY
    buffer.synchronize()
    asyncio.run(buffer.ensure_on_device())
    assert buffer.state in (BufferState.HOST_DIRTY, BufferState.SYNCHRONIZED)
    assert buffer[3] == 3 and len(buffer) == 10 and "UnifiedBuffer" in repr(buffer)
    assert UnifiedBuffer[np.float32]
    with pytest.raises(ValueError):
        buffer.copy_from(np.zeros(3, np.float32))


def test_buffer_pool():
    cistern.compat.install("pycsa")
    from pycsa.core.buffer_pool import BufferPool

    pool = BufferPool()
    pool.get_or_create("coeff", (1000, 100), np.float64)
    view = pool.get_or_create("coeff", (500, 100), np.float64)
    assert view.shape == (500, 100) and view.flags.c_contiguous
    assert pool.stats["coeff"] == {"hits": 1, "misses": 1, "grows": 0}
    assert list(pool.buffers) == ["coeff"] and pool.buffers["coeff"][1].nbytes == 800_000
    pool.clear()
    assert not pool.stats and not pool.buffers and pool


def test_the_modules_can_be_imported_directly():
    from cistern.compat.pycsa import BufferPool  # noqa: F401
    from cistern.compat.pydotcompute.core.memory_pool import MemoryPool  # noqa: F401
    from cistern.compat.pydotcompute.core.unified_buffer import UnifiedBuffer  # noqa: F401
    from cistern.compat.pydotcompute.exceptions import BufferNotAllocatedError  # noqa: F401


def test_unknown_packages_are_refused():
    with pytest.raises(ValueError, match="'numpy'"):
        cistern.compat.install("numpy")


@pytest.mark.parametrize("imported_before", [False, True])
def test_an_installed_package_gets_the_pool(tmp_path, imported_before):
    core = tmp_path / "pycsa" / "core"
    core.mkdir(parents=True)
    (tmp_path / "pycsa" / "__init__.py").write_text("from .core.buffer_pool import BufferPool\n")
    (core / "__init__.py").write_text("")
    (core / "buffer_pool.py").write_text("class BufferPool: pass\n")
    (core / "solver.py").write_text("from .buffer_pool import BufferPool\n")
    program = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        {"import pycsa.core.solver" if imported_before else ""}
        import cistern
        cistern.compat.install("pycsa")
        import pycsa, pycsa.core.solver
        import pycsa.core.buffer_pool as module
        assert pycsa.BufferPool is pycsa.core.solver.BufferPool is module.BufferPool
        assert issubclass(pycsa.BufferPool, cistern.KeyedPool)
        """)
    subprocess.run([sys.executable, "-c", program], check=True)
