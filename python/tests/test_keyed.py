"""KeyedPool, row by row of what it promises."""

import _thread
import pickle
import queue
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import cistern


@pytest.fixture
def keyed():
    return cistern.KeyedPool()


def test_explains_what_is_held_under_each_key(keyed):
    keyed.get_or_create("gram", 10)
    keyed.get_or_create("coeff", (100, 100))
    keyed.get_or_create(("cell", 7), 0)
    report = keyed.explain()
    assert [(row["key"], row["lent_buffers"]) for row in report.keys] == [
        ("coeff", 1), ("gram", 1), ("('cell', 7)", 0)]
    assert report.keys[0]["lent_bytes"] >= 80_000
    assert "key 'coeff': 1 buffer, 78." in str(report)
    assert report.lent_bytes >= sum(row["lent_bytes"] for row in report.keys)
    assert cistern.KeyedPool().explain().keys == []


def test_counts_misses_hits_and_grows(keyed):
    keyed.get_or_create("coeff", (10, 10))
    keyed.get_or_create("coeff", (5, 5))
    keyed.get_or_create("coeff", (20, 20))
    keyed.get_or_create("gram", (3, 3))
    stats = keyed.get_stats()
    assert stats == {
        "coeff": {"hits": 1, "misses": 1, "grows": 1},
        "gram": {"hits": 0, "misses": 1, "grows": 0},
    }
    stats["coeff"]["hits"] = 99
    assert keyed.get_stats()["coeff"]["hits"] == 1


def test_fits_by_bytes_and_is_contiguous(keyed):
    keyed.get_or_create("a", (4, 3))
    for shape, dtype in [((3, 4), "f8"), ((2, 6), "f8"), (24, "f4"), ((), "f8"), ((96,), "u1")]:
        array = keyed.get_or_create("a", shape, dtype)
        assert array.shape == np.empty(shape).shape and array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous and array.ctypes.data % 64 == 0
    assert keyed.get_stats()["a"] == {"hits": 5, "misses": 1, "grows": 0}
    assert keyed.get_memory_usage()["buffers"]["a"] * 2**20 == 96


def test_hits_share_the_bytes(keyed):
    keyed.get_or_create("a", 10)[:] = np.arange(10)
    assert keyed.get_or_create("a", 10).tolist() == list(range(10))


def test_arrays_handed_out_stay_valid(keyed):
    old = keyed.get_or_create("a", 1000)
    old[:] = 1
    new = keyed.get_or_create("a", 100_000)
    new[:] = 2
    assert (old == 1).all()
    keyed.clear()
    assert (old == 1).all() and (new == 2).all()
    assert keyed.get_stats() == {} and keyed.get_memory_usage() == {"total_mb": 0, "buffers": {}}


def test_growing_keeps_the_bytes_when_nobody_looks(keyed):
    keyed.get_or_create("a", 100_000)[:] = 5
    grown = keyed.get_or_create("a", 200_000)
    assert (grown[:100_000] == 5).all()
    assert keyed.pool.stats().grows == 1


@pytest.mark.parametrize(
    "shape, error",
    [((3, -1), ValueError), (2.5, TypeError), ("a", TypeError), ((2**40, 2**40), ValueError)],
)
def test_bad_requests_count_nothing(keyed, shape, error):
    with pytest.raises(error):
        keyed.get_or_create("a", shape)
    keyed.get_or_create("b", 3)
    with pytest.raises(error):
        keyed.get_or_create("b", shape)
    with pytest.raises(TypeError):
        keyed.get_or_create("b", 3, object)
    assert keyed.get_stats() == {"b": {"hits": 0, "misses": 1, "grows": 0}}


def test_out_of_memory_changes_nothing():
    keyed = cistern.KeyedPool(cistern.Pool(max_bytes=1 << 20, max_idle_bytes=1 << 20))
    keyed.get_or_create("a", 1000)[:] = 3
    with pytest.raises(MemoryError):
        keyed.get_or_create("a", 1 << 20)
    assert (keyed.get_or_create("a", 1000) == 3).all()
    assert keyed.get_stats()["a"] == {"hits": 1, "misses": 1, "grows": 0}


def test_an_empty_pool_is_true(keyed):
    assert keyed
    assert not hasattr(keyed, "__len__")


def test_usage_is_in_mebibytes(keyed):
    keyed.get_or_create("a", (1024, 1024))
    keyed.get_or_create("b", (512, 1024))
    assert keyed.get_memory_usage() == {"total_mb": 12.0, "buffers": {"a": 8.0, "b": 4.0}}


def in_thread(function):
    result = []

    def run():
        try:
            result.append(function())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result[0]


def test_a_second_thread_gets_an_error_or_its_own():
    keyed = cistern.KeyedPool()
    keyed.get_or_create("a", 10)
    assert isinstance(in_thread(lambda: keyed.get_or_create("a", 10)), ValueError)
    own = cistern.KeyedPool(same_key="own_buffer")
    mine = own.get_or_create("a", 10)
    theirs = in_thread(lambda: own.get_or_create("a", 10))
    assert not np.shares_memory(mine, theirs)
    with pytest.raises(ValueError):
        cistern.KeyedPool(same_key="share")


def test_a_key_of_a_thread_that_ended_is_free():
    keyed = cistern.KeyedPool()
    in_thread(lambda: keyed.get_or_create("a", 10).fill(4))
    assert (keyed.get_or_create("a", 10) == 4).all()


@contextmanager
def held_elsewhere(keyed, start, wanted=lambda: True):
    """Has another thread hold key "a" during the block, one for which `wanted` is true."""
    done = threading.Event()
    for _ in range(1000):
        answers = queue.SimpleQueue()

        def hold():
            if not wanted():
                return answers.put(False)
            array = keyed.get_or_create("a", 10)
            answers.put(True)
            done.wait(30)
            del array
            answers.put(True)

        start(hold)
        if answers.get(timeout=30):
            break
    else:
        pytest.skip("no thread of the wanted kind")
    yield
    done.set()
    answers.get(timeout=30)


def start(function):
    threading.Thread(target=function).start()


def test_a_thread_with_the_number_of_one_that_ended_keeps_its_key():
    keyed = cistern.KeyedPool()
    number = in_thread(lambda: (keyed.get_or_create("a", 10), threading.get_ident())[1])
    with held_elsewhere(keyed, start, lambda: threading.get_ident() == number):
        with pytest.raises(ValueError, match="another thread"):
            keyed.get_or_create("a", 10)


def test_a_thread_that_python_did_not_start_keeps_its_key(keyed):
    with held_elsewhere(keyed, lambda function: _thread.start_new_thread(function, ())):
        with pytest.raises(ValueError, match="another thread"):
            keyed.get_or_create("a", 10)


def test_prints_and_pickles(keyed):
    keyed.get_or_create("a", 10)
    assert "1 keys" in repr(keyed) and "<table>" in keyed._repr_html_()
    assert pickle.loads(pickle.dumps(keyed)).get_stats() == {}
