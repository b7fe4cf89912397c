"""Random shapes, dtypes, lifetimes and threads against plain NumPy; no leaks in the long run."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cistern

SHAPES = st.one_of(
    st.integers(0, 5000),
    st.lists(st.integers(0, 12), max_size=4).map(tuple),
)
DTYPES = st.sampled_from(
    [
        "b1",
        "i1",
        "u2",
        "i4",
        "i8",
        "f2",
        "f4",
        "f8",
        "c8",
        "c16",
        "S3",
        "U2",
        "M8[s]",
        ">i4",
        [("x", "f4"), ("n", "i8")],
        np.float32,
        float,
        int,
        bool,
    ]
)
FITS = st.sampled_from(["elastic", "exact", "best", "best:1"])


@settings(max_examples=200, deadline=None)
@given(
    FITS,
    st.lists(st.tuples(SHAPES, DTYPES, st.sampled_from(["empty", "zeros", "full"])), max_size=20),
    st.data(),
)
def test_arrays_behave_as_numpys(fit, requests, data):
    pool = cistern.Pool(fit=fit)
    live = []
    for mark, (shape, dtype, verb) in enumerate(requests):
        if verb == "full":
            array, twin = pool.zeros(shape, dtype), np.zeros(shape, dtype)
            if np.dtype(dtype).kind in "biufc":
                array.fill(mark % 2), twin.fill(mark % 2)
        else:
            array, twin = getattr(pool, verb)(shape, dtype), np.zeros(shape, dtype)
            array[...] = twin
        live.append((array, twin))
        if live and data.draw(st.booleans()):
            del live[data.draw(st.integers(0, len(live) - 1))]
        for ours, theirs in live:
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()
    array = twin = ours = theirs = None
    live.clear()
    assert pool.stats().lent_buffers.now == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), SHAPES, DTYPES), max_size=20))
def test_keyed_pools_follow_their_counts(requests):
    pool = cistern.KeyedPool()
    bytes_of, counts = {}, {}
    for key, shape, dtype in requests:
        array = pool.get_or_create(key, shape, dtype)
        expected = np.empty(shape, dtype)
        assert array.shape == expected.shape and array.dtype == expected.dtype
        assert array.flags.c_contiguous
        count = counts.setdefault(key, {"hits": 0, "misses": 0, "grows": 0})
        if key not in bytes_of:
            count["misses"] += 1
        else:
            count["hits" if expected.nbytes <= bytes_of[key] else "grows"] += 1
        bytes_of[key] = max(bytes_of.get(key, 0), expected.nbytes)
    assert pool.get_stats() == counts
    usage = pool.get_memory_usage()["buffers"]
    assert {key: round(mb * 2**20) for key, mb in usage.items()} == bytes_of


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(SHAPES, max_size=10), min_size=2, max_size=4))
def test_threads_under_the_numpy_handler(requests):
    pool = cistern.Pool()
    wrong = []

    def work(mark, shapes):
        with cistern.numpy_pool(pool, min_bytes=512):
            live = []
            for shape in shapes:
                live.append(np.full(shape, mark, "i8"))
                if len(live) > 3:
                    live.pop(0)
                if not all((array == mark).all() for array in live):
                    wrong.append(mark)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and pool.stats().lent_buffers.now == 0


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


POOL = cistern.Pool(name="cycles")
KEYED = cistern.KeyedPool(POOL)
SERVING = cistern.numpy_pool(POOL, min_bytes=512)


def lend(i):
    POOL.empty((i & 1023,))
    POOL.zeros(64, "f4")[1:]
    POOL.empty((8, 8), dtype=np.int16)


def fail(i):
    shape, dtype = (((-1,), None), (3, object), ("x", None), ((2, 2**62), None))[i & 3]
    try:
        POOL.empty(shape, dtype)
    except (TypeError, ValueError):
        pass


def ask_by_key(i):
    KEYED.get_or_create(i & 7, (i & 255,))


def serve_numpy(i):
    with SERVING:
        np.zeros(i & 255)


def lend_for_a_block(i):
    with POOL.array(1 + (i & 255)) as array:
        array.fill(0)


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps what is freed"
)
@pytest.mark.parametrize("cycle", [lend, fail, ask_by_key, serve_numpy, lend_for_a_block])
def test_a_million_cycles_leak_nothing(cycle):
    for i in range(50_000):
        cycle(i)
    before, held = resident_bytes(), POOL.stats().held_bytes.now
    lent = POOL.stats().lent_buffers.now

    for i in range(1_000_000):
        cycle(i)

    assert POOL.stats().lent_buffers.now == lent and POOL.stats().held_bytes.now == held
    assert resident_bytes() - before < 2 << 20
