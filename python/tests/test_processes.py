"""Other processes, other interpreters, and the end of this one."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import cistern


def run(program, **environment):
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def test_arrays_may_live_until_the_interpreter_ends():
    output = run("""
        import atexit, sys, threading, numpy as np, cistern
        pool = cistern.Pool()
        kept = [pool.zeros(1000), pool.zeros(1 << 20)]
        cycle = [pool.zeros(500)]; cycle.append(cycle)
        class Late:
            def __init__(self): self.array = pool.zeros(300)
            def __del__(self): self.array = None
        late = Late(); sys.late = late; late.self = late
        cistern.enable_numpy(pool, min_bytes=100)
        served = np.ones(100_000)
        atexit.register(lambda: pool.empty(77))
        vector = pool.vector(10)
        def work():
            for i in range(10**9): pool.empty(1000 + i % 100)
        threading.Thread(target=work, daemon=True).start()
        """)
    assert output == ""


@pytest.mark.skipif(
    "libasan" not in os.environ.get("LD_PRELOAD", ""), reason="needs AddressSanitizer"
)
def test_the_sanitizer_sees_who_reads_what_was_given_back():
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            """if True:
            import ctypes, cistern
            pool = cistern.Pool()
            address = pool.zeros(1000, "u1").ctypes.data
            ctypes.string_at(address, 1000)
            """,
        ],
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0 and "use-after-poison" in result.stderr


def test_threads_that_wait_for_memory_when_the_interpreter_ends():
    output = run("""
        import threading, time, numpy as np, cistern
        pool = cistern.Pool(max_idle_bytes=64 << 20)
        def lend():
            while True: pool.zeros(1 << 20)
        def serve():
            cistern.enable_numpy(pool)
            while True: np.zeros(1 << 20)
        def trim():
            while True: pool.trim()
        def give_back():
            while True: pool.empty(16 << 20)
        for work in (lend, serve, trim, give_back):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """)
    assert output == ""


def child_sum(pool, n):
    return float(pool.full(n, 2.0).sum()), pool.name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_in_child_processes(method):
    pool = cistern.Pool(name="parent")
    held = pool.full(1000, 1.0)
    context = multiprocessing.get_context(method)
    with context.Pool(2) as workers:
        results = workers.starmap(child_sum, [(pool, n) for n in range(1000, 1010)])
    assert results == [(2.0 * n, "parent") for n in range(1000, 1010)]
    assert held.sum() == 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_arrays_from_before_a_fork_work_in_the_child():
    pool = cistern.Pool()
    held = pool.full(100_000, 1.0)
    child = os.fork()
    if child == 0:
        ok = held.sum() == 100_000
        del held
        ok = ok and pool.zeros(100_000).sum() == 0 and pool.stats().hits == 1
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert held.sum() == 100_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_lock_that_another_thread_holds_does_not_stop_the_child():
    keyed, memory = cistern.KeyedPool(), cistern.MemoryPool()
    held, done = threading.Event(), threading.Event()

    def hold():
        with keyed._lock, memory._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        keyed.get_or_create("a", 10)
        memory.release(memory.acquire(10))
        os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_second_interpreter_is_refused():
    output = run("""
        import cistern
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        other = interpreters.create()
        interpreters.run_string(other, "try: import cistern\\nexcept ImportError as e: print(e, flush=True)")
        """)
    assert "interpreter" in output and output.count("\n") == 1
