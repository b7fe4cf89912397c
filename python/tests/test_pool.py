"""Pools lend plain NumPy arrays and get their memory back."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import cistern

DTYPES = [
    "b1",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    "G",
    "M8[s]",
    "m8[ns]",
    "S5",
    "U7",
    "V3",
    ">f8",
    [("x", "f4"), ("n", "i8"), ("label", "S3")],
    np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"]}, align=True),
]


def lent(pool):
    return pool.stats().lent_buffers.now


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_are_what_numpy_gives(pool, dtype):
    for shape in [(), 0, 1, (7,), (3, 4), (2, 0, 5), [2, 3], np.int64(6), (np.int32(2), 3)]:
        expected = np.zeros(shape, dtype)

        for array in (pool.empty(shape, dtype), pool.zeros(shape, dtype)):
            assert type(array) is np.ndarray
            assert array.shape == expected.shape and array.dtype == expected.dtype
            assert array.strides == expected.strides
            assert array.flags.c_contiguous and array.flags.writeable and array.flags.owndata
            assert array.ctypes.data % 64 == 0 or array.nbytes == 0
        assert array.tobytes() == expected.tobytes()


def test_subarray_and_unsized_dtypes_follow_numpy(pool):
    for dtype in ["(2,3)f4", "S", "U", "V0"]:
        expected = np.empty(5, dtype)
        array = pool.empty(5, dtype)
        assert array.shape == expected.shape and array.dtype == expected.dtype


def test_memory_returns_when_the_last_view_dies(pool):
    array = pool.empty((100, 100))
    view = array[10:20].T
    del array
    assert lent(pool) == 1
    del view
    assert lent(pool) == 0
    assert pool.stats().idle_buffers.now == 1


def test_the_same_bytes_come_back(pool):
    address = pool.empty(1000).ctypes.data
    again = pool.empty(1000)
    assert again.ctypes.data == address
    assert pool.stats().hits == 1


def test_arrays_outlive_their_pool():
    pool = cistern.Pool()
    array = pool.full(10_000, 3.0)
    del pool
    gc.collect()
    assert array.sum() == 30_000


def test_zeros_are_zero_on_used_bytes(pool):
    pool.full(50_000, 7.0)
    assert not pool.zeros(50_000).any()


def test_full_and_likes(pool):
    prototype = np.asfortranarray(np.ones((3, 4), "f4"))
    assert pool.full((2, 2), 5).dtype == np.asarray(5).dtype
    assert pool.full(3, 1 + 2j, "c8").tolist() == [1 + 2j] * 3
    like = pool.empty_like(prototype)
    assert like.shape == (3, 4) and like.dtype == np.float32 and like.flags.c_contiguous
    assert pool.zeros_like(prototype, dtype="i2", shape=5).tolist() == [0] * 5
    assert pool.zeros_like([[1, 2], [3, 4]]).shape == (2, 2)
    assert (pool.copy(prototype) == prototype).all()


@pytest.mark.skipif(not os.path.exists("/sys/devices/system/node/node0"), reason="this system names no NUMA nodes")
def test_pages_on_a_numa_node():
    pool = cistern.Pool(numa_node=0, name="near")
    assert pool.memory == "host:0"
    assert pool.zeros(100_000).sum() == 0
    assert pickle.loads(pickle.dumps(pool)).options["numa_node"] == 0
    for wrong in (-1, 2**70):
        with pytest.raises(cistern.InvalidArgument, match=f"numa_node is out of range: {wrong}"):
            cistern.Pool(numa_node=wrong)
    with pytest.raises(cistern.InvalidArgument, match="no such NUMA node: 1000000"):
        cistern.Pool(numa_node=1_000_000)
    with pytest.raises(TypeError, match="numa_node is an integer"):
        cistern.Pool(numa_node="0")
    with pytest.raises(cistern.InvalidArgument, match="numa_node is for memory 'host'"):
        cistern.Pool("managed", numa_node=0)
    with pytest.raises(cistern.InvalidArgument, match="device is for memory 'pinned' and 'managed', not for 'host': 0"):
        cistern.Pool(device=0)
    with pytest.raises(TypeError, match="device is an integer"):
        cistern.Pool("pinned", device="0")


def test_keywords(pool):
    assert pool.empty(shape=(2, 3), dtype=np.int8).shape == (2, 3)
    assert pool.zeros((2,), dtype=None).dtype == np.float64


@pytest.mark.parametrize(
    "shape, error",
    [
        (-1, ValueError),
        ((2, -3), ValueError),
        (2**70, ValueError),
        ((2**40, 2**40), ValueError),
        (2**62, ValueError),
        ((1,) * 65, ValueError),
        (2.5, TypeError),
        ((2, 2.0), TypeError),
        ("12", TypeError),
        (b"12", TypeError),
        (None, TypeError),
        ({3}, TypeError),
        (object(), TypeError),
        ((2, None), TypeError),
        ([[1, 2]], TypeError),
    ],
)
def test_bad_shapes_are_refused_and_change_nothing(pool, shape, error):
    for lend in (pool.empty, pool.zeros):
        with pytest.raises(error) as raised:
            lend(shape)
        assert str(raised.value)
    assert pool.stats().acquires == 0


def test_errors_name_the_value(pool):
    with pytest.raises(cistern.InvalidArgument, match=r"\(2, -3\)"):
        pool.empty((2, -3))
    with pytest.raises(TypeError, match="2.5"):
        pool.empty(2.5)
    with pytest.raises(TypeError, match="nonsense"):
        pool.empty(3, "nonsense")


@pytest.mark.parametrize("dtype", [object, "O", [("x", "f4"), ("o", "O")]])
def test_object_dtypes_are_refused_with_a_reason(pool, dtype):
    with pytest.raises(TypeError, match="references to Python objects"):
        pool.empty(3, dtype)


@pytest.mark.parametrize("dtype", ["nonsense", 3.5, object(), "f3"])
def test_unknown_dtypes_are_refused(pool, dtype):
    with pytest.raises(TypeError):
        pool.empty(3, dtype)
    assert pool.stats().acquires == 0


def test_wrong_arguments(pool):
    for call in (
        lambda: pool.empty(),
        lambda: pool.empty(1, "f4", "C"),
        lambda: pool.empty(1, shape=2),
        lambda: pool.empty(1, order="C"),
        lambda: cistern.Pool.empty(3, 4),
    ):
        with pytest.raises(TypeError):
            call()


def test_a_pool_without_init_is_no_crash():
    broken = cistern.Pool.__new__(cistern.Pool)
    with pytest.raises((RuntimeError, TypeError)):
        broken.empty(3)


def test_out_of_memory_is_a_memory_error():
    pool = cistern.Pool(max_bytes=1 << 20, max_idle_bytes=1 << 20)
    held = pool.empty(100_000, "u1")
    with pytest.raises(MemoryError) as raised:
        pool.empty(1 << 20, "u1")
    assert isinstance(raised.value, cistern.OutOfMemory) and isinstance(raised.value, cistern.Error)
    assert pool.stats().failures == 1
    del held
    with pytest.raises(MemoryError):
        cistern.Pool().empty(2**55)


@pytest.mark.parametrize(
    "fit",
    [
        "elastic",
        "exact",
        "best",
        "best:0.1",
        "fixed:80000",
        cistern.BestFit(1.0),
        cistern.ExactFit(),
    ],
)
def test_every_fit_lends(fit):
    pool = cistern.Pool(fit=fit)
    for _ in range(3):
        assert pool.full(1000, 2.0).sum() == 2000
    assert pool.stats().hits == 2


def test_fixed_blocks():
    pool = cistern.Pool(fit=cistern.FixedBlock(8000))
    pool.empty(1000)
    with pytest.raises(ValueError, match="8008"):
        pool.empty(1001)
    assert cistern.Pool(fit="fixed:0").empty(0).size == 0


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"fit": "worst"}, ValueError),
        ({"fit": "best:much"}, ValueError),
        ({"fit": 3}, TypeError),
        ({"memory": "tape"}, ValueError),
        ({"memory": "device"}, cistern.Unavailable),
        ({"memory": 3}, TypeError),
        ({"max_idle_bytes": -1}, ValueError),
        ({"max_idle_bytes": 1.5}, TypeError),
        ({"max_bytes": "1 GiB"}, TypeError),
        ({"max_idle_age": -1}, ValueError),
        ({"max_idle_age": "long"}, TypeError),
        ({"evict": "newest"}, ValueError),
        ({"alignment": 3}, ValueError),
        ({"alignment": None}, TypeError),
        ({"fit": cistern.BestFit(-1.0)}, ValueError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_options_that_make_no_sense(arguments, error):
    with pytest.raises(error):
        cistern.Pool(**arguments)


def test_larger_alignments():
    pool = cistern.Pool(alignment=4096)
    assert pool.empty(10).ctypes.data % 4096 == 0


def test_separate_types():
    pool = cistern.Pool(fit="best:1", separate_types=True)
    pool.empty(1000, "f8")
    pool.empty(1000, "i8")
    assert pool.stats().hits == 0
    assert not pool.zeros(1000, "f8").any()
    assert pool.stats().hits == 1


def test_trim_and_limits(pool):
    pool.empty(1 << 20)
    assert pool.trim() >= 8 << 20
    assert pool.stats().idle_bytes.now == 0
    pool.set_limits(max_idle_bytes=0)
    pool.empty(1000)
    assert pool.stats().idle_bytes.now == 0
    assert pool.options["max_idle_bytes"] == 0
    with pytest.raises(ValueError):
        pool.set_limits(max_idle_bytes=-5)
    with pytest.raises(TypeError, match="keep_idle_bytes is an integer"):
        pool.trim(None)


def test_with_block_gives_back_at_once(pool):
    with pool.array((10, 10)) as a:
        a[...] = 1
        assert lent(pool) == 1
    assert lent(pool) == 0
    assert a.shape == (0, 0) and a.sum() == 0
    with pytest.raises(IndexError):
        a[0, 0]


def test_with_block_spares_what_others_hold(pool):
    with pool.array(10, zeroed=True) as a:
        kept = a[2:]
    assert kept.tolist() == [0.0] * 8 and a.shape == (10,)
    with pytest.raises(RuntimeError):
        with pool.array(10) as b:
            raise RuntimeError
    assert b.size == 0

    def returned():
        with pool.array(10, zeroed=True) as c:
            return c

    assert returned().tolist() == [0.0] * 10


def test_resize_and_other_changes_of_owned_memory(pool):
    array = pool.full(1000, 3.0)
    array.resize(100_000, refcheck=False)
    assert array[:1000].sum() == 3000 and array[1000:].sum() == 0
    array.resize(10, refcheck=False)
    assert array.tolist() == [3.0] * 10
    array.resize(0, refcheck=False)
    del array
    assert lent(pool) == 0


def test_ordinary_numpy_works_on_pooled_arrays(pool):
    a = pool.empty((50, 50))
    a[...] = np.arange(2500).reshape(50, 50)
    assert np.array_equal(np.sort(a.ravel()[::-1]), np.arange(2500))
    assert np.array_equal(pickle.loads(pickle.dumps(a)), a)
    assert bytes(memoryview(a)) == a.tobytes()
    a.setflags(write=False)
    with pytest.raises(ValueError):
        a[0, 0] = 1


def test_vector_grows(pool):
    vector = pool.vector(2, "i4")
    early = None
    for i in range(1000):
        vector.append(i)
        if i == 1:
            early = vector.view()
    vector.extend(range(1000, 2000))
    assert len(vector) == 2000 and vector.capacity >= 2000
    assert np.array_equal(vector, np.arange(2000)) and early.tolist() == [0, 1]
    vector[3] = -1
    assert vector[3] == -1
    vector.clear()
    assert len(vector) == 0 and list(vector) == []


@pytest.mark.parametrize(
    "capacity, error",
    [
        (-1, ValueError),
        (2**70, ValueError),
        (2**61, ValueError),
        (2.5, TypeError),
        (None, TypeError),
        ("3", TypeError),
    ],
)
def test_capacities_that_make_no_sense(pool, capacity, error):
    with pytest.raises(error, match=str(capacity)):
        pool.vector(capacity)
    vector = pool.vector(3)
    with pytest.raises(error, match=str(capacity)):
        vector.reserve(capacity)
    assert vector.capacity == 3
    with pytest.raises(TypeError):
        pool.vector(3, object)


def test_released_on_another_thread(pool):
    arrays = [pool.full(1000, float(i)) for i in range(100)]
    sums = []

    def consume():
        while arrays:
            sums.append(arrays.pop().sum())

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join()
    assert sum(sums) == 1000 * sum(range(100))
    assert lent(pool) == 0


def test_threads_never_share(pool):
    errors = []

    def work(mark):
        rng = np.random.default_rng(mark)
        for _ in range(300):
            array = pool.empty(int(rng.integers(1, 200_000)), "u1")
            array[...] = mark
            if not (array == mark).all():
                errors.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and lent(pool) == 0


BYTES = 256 << 20


def dirty(pool):
    array = pool.empty(BYTES, "u1")
    array[::4096] = 1
    return array


@pytest.mark.parametrize(
    "keeps, prepare, work",
    [
        (1 << 30, lambda pool: dirty(pool).size, lambda pool, _: pool.zeros(BYTES, "u1")),
        (0, lambda pool: [dirty(pool)], lambda pool, arrays: arrays.clear()),
        (1 << 30, lambda pool: dirty(pool).size, lambda pool, _: pool.trim()),
    ],
    ids=["zeroing", "release", "trim"],
)
def test_other_threads_run_meanwhile(keeps, prepare, work):
    pool = cistern.Pool(huge_pages=False, max_idle_bytes=keeps)  # many small pages take their time
    prepared = prepare(pool)
    ticks, stop, interval = [0], threading.Event(), sys.getswitchinterval()

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.0001)

    thread = threading.Thread(target=tick)
    thread.start()
    sys.setswitchinterval(100)  # from here on a thread runs only when another lets it
    try:
        before = ticks[0]
        work(pool, prepared)
        assert ticks[0] > before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def test_reports(pool):
    pool.empty(1000)
    pool.empty(1000)
    stats = pool.stats()
    assert stats.acquires == stats.hits + stats.misses == 2 and stats.hit_rate == 0.5
    assert "hit rate" in str(stats) and "lent_buffers" in repr(stats)
    assert "<table>" in stats._repr_html_() and "hits" in pool._repr_html_()
    assert stats.as_dict()["hits"] == 1 and '"hits"' in stats.json()
    assert stats == pool.stats()
    explanation = pool.explain()
    assert explanation.pool == "test" and explanation.idle_bytes == stats.idle_bytes.now
    assert str(explanation) and "<pre>" in explanation._repr_html_()
    assert "'test'" in repr(pool)


def test_pickling_keeps_the_options():
    pool = cistern.Pool(
        fit=cistern.BestFit(0.1), name="mine", max_idle_bytes=123_456, max_idle_age=2.5
    )
    copy = pickle.loads(pickle.dumps(pool))
    assert copy is not pool and copy.options == pool.options and copy.name == "mine"
    default = cistern.default_pool()
    assert pickle.loads(pickle.dumps(default)) is default


def test_pickling_leaves_the_defaults_of_the_machine_behind():
    pools = cistern.Pool(), cistern.Pool(max_bytes=1 << 30), cistern.Pool()
    pools[2].set_limits(max_idle_bytes=1 << 20)
    program = (
        "import pickle, sys\n"
        "for pool in pickle.load(sys.stdin.buffer): print(pool.options['max_idle_bytes'])"
    )
    environment = {**os.environ, "CISTERN_MAX_IDLE_BYTES": str(1 << 28)}
    child = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(pools), env=environment,
        capture_output=True, check=True,
    )
    assert child.stdout.split() == [b"%d" % (1 << 28), b"%d" % (1 << 28), b"%d" % (1 << 20)]


def test_dtype_references_are_not_lost(pool):
    dtype = np.dtype([("x", "f4"), ("y", "i8")])
    before = sys.getrefcount(dtype)
    for _ in range(1000):
        pool.empty(10, dtype)
    assert sys.getrefcount(dtype) - before <= 2


@pytest.mark.parametrize(
    "kind",
    [
        cistern.Error,
        cistern.InvalidArgument,
        cistern.OutOfMemory,
        cistern.Unavailable,
        cistern.DeviceError,
        cistern.BufferNotAllocatedError,
    ],
)
def test_errors_travel_between_processes(kind):
    for copy in (pickle.loads(pickle.dumps(kind("text"))), kind.__new__(kind, "text")):
        assert type(copy) is kind and copy.args == ("text",)
