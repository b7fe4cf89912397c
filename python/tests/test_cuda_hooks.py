"""What PyTorch, CuPy and Numba allocate through the hooks. Needs a device, and each of them its own package."""

import pytest
from cuda_machine import needs_device, run


@needs_device
def test_torch_allocates_from_the_pool():
    pytest.importorskip("torch")
    print(run("""
        import torch, cistern.torch
        cistern.torch.enable()
        side = torch.cuda.Stream()
        for n in range(1, 60):
            x = torch.full((n, 1000), n, device="cuda", dtype=torch.float64)
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                y = x * 2
                x.record_stream(side)
            del x
            torch.cuda.default_stream().wait_stream(side)
            assert float(y.sum()) == 2.0 * n * n * 1000, n
        stats = cistern.torch.stats()
        assert stats["acquires"] > 100 and stats["hits"] > 0, stats
        assert stats["held_bytes"]["now"] == stats["lent_bytes"]["now"] + stats["idle_bytes"]["now"]
    """))


@needs_device
def test_torch_out_of_memory_is_an_exception():
    pytest.importorskip("torch")
    run("""
        import torch, cistern.torch
        cistern.torch.enable()
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except RuntimeError as error:
            assert "memory" in str(error) and "cuda:0" in str(error), error
        else:
            raise SystemExit("nothing was raised")
        assert float(torch.ones(10, device="cuda").sum()) == 10
    """)


@needs_device
def test_torch_graphs_keep_their_memory():
    pytest.importorskip("torch")
    run("""
        import torch, cistern.torch
        cistern.torch.enable()
        static = torch.zeros(1000, device="cuda")
        warm = torch.cuda.Stream()
        with torch.cuda.stream(warm):
            (static * 2 + 1).sum()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = static * 2 + 1
        for value in range(20):
            noise = [torch.full((1000,), -1.0, device="cuda") for _ in range(50)]
            static.fill_(value)
            graph.replay()
            assert float(result.sum()) == 1000.0 * (2 * value + 1), value
            del noise
    """)


@needs_device
def test_torch_mem_pool():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no MemPool")
    run("""
        import torch, cistern.torch
        pool = cistern.torch.mem_pool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(1 << 20, device="cuda")
        assert float(x.sum()) == 1 << 20
        assert cistern.torch.stats()["acquires"] >= 1
    """)


@needs_device
def test_cupy_allocates_from_the_pool():
    pytest.importorskip("cupy")
    run("""
        import cupy, numpy, cistern.cupy
        cistern.cupy.enable(pinned=True)
        for n in range(1, 40):
            x = cupy.arange(n * 1000, dtype=cupy.float64)
            with cupy.cuda.Stream(non_blocking=True) as stream:
                y = cupy.fft.ifft(cupy.fft.fft(cupy.ones(n * 100))).real.sum()
                stream.synchronize()
            assert abs(float(y) - n * 100) < 1e-6
            assert float(x.sum()) == n * 1000 * (n * 1000 - 1) / 2
        assert cistern.cupy.stats()["hits"] > 0
        cistern.cupy.disable()
        assert float(cupy.ones(10).sum()) == 10
        with cistern.cupy.using():
            kept = cupy.ones(1000)
        assert float(kept.sum()) == 1000
    """)


@needs_device
def test_cupys_allocator_asks_cupy_for_its_device_and_stream():
    run("""
        import gc, sys, types
        import cistern.cuda
        from cistern import _core
        try:
            _core.cupy_malloc(8)
        except RuntimeError as error:
            assert "cistern.cupy" in str(error)
        else:
            raise SystemExit("it does not know CuPy yet")

        class UnownedMemory:
            def __init__(self, *arguments):
                self.ptr, self.size, self.owner, self.device_id = arguments

        class MemoryPointer:
            def __init__(self, mem, offset):
                self.mem, self.offset = mem, offset

        class Runtime:
            device = 0
            def getDevice(self):
                if self.device is None:
                    raise OSError("no device now")
                return self.device

        class Stream:
            handle, asked = 0, 0
            @property
            def ptr(self):
                self.asked += 1
                return self.handle

        runtime, stream = Runtime(), Stream()
        of_cuda = types.SimpleNamespace(UnownedMemory=UnownedMemory, MemoryPointer=MemoryPointer, runtime=runtime,
                                        get_current_stream=lambda: stream, PinnedMemory=object)
        sys.modules["cupy"] = types.ModuleType("cupy")
        sys.modules["cupy"].cuda = of_cuda
        from cistern.cupy import malloc, stats

        def lent(device=0):
            return cistern.cuda.stats(device)["lent_bytes"]["now"]

        first, nothing = malloc(1000), malloc(0)
        assert first.offset == 0 and first.mem.size == 1000 and first.mem.device_id == 0
        assert nothing.mem.size == 0 and nothing.mem.ptr not in (0, first.mem.ptr)
        assert stats()["lent_buffers"]["now"] == 2
        place = first.mem.ptr
        del first, nothing
        assert lent() == 0
        again = malloc(1000)
        assert again.mem.ptr == place
        stream.handle = 2  # the thread's own default stream
        beside = malloc(1000)
        assert beside.mem.ptr != place and stream.asked == 4
        del again, beside
        assert lent() == 0
        stream.handle = 0

        for wrong, error in ((-1, cistern.InvalidArgument), (1 << 70, OverflowError), ("x", TypeError),
                             (1 << 60, cistern.OutOfMemory)):
            try:
                malloc(wrong)
            except error as raised:
                assert wrong in ("x", 1 << 60) or str(wrong) in str(raised) or wrong == 1 << 70, raised
            else:
                raise SystemExit(f"{wrong} raises nothing")
        runtime.device = 99
        try:
            malloc(8)
        except cistern.InvalidArgument as raised:
            assert "99" in str(raised)
        else:
            raise SystemExit("there is no such device")
        runtime.device = None
        try:
            malloc(8)
        except OSError:
            pass
        else:
            raise SystemExit("CuPy's error is lost")
        assert lent() == 0
    """)


@needs_device
def test_a_thread_in_cupys_allocator_may_be_there_when_the_interpreter_ends():
    run("""
        import sys, threading, time, types
        from cistern import _core
        began = threading.Event()

        class Late:
            def __del__(self, sleep=time.sleep):
                sleep(0.3)  # the interpreter has ended, and the thread asks for its lock

        def current_stream():
            began.set()
            time.sleep(0.05)  # without the interpreter's lock
            return types.SimpleNamespace(ptr=0)

        _core.cupy_uses(lambda *arguments: arguments, lambda *arguments: arguments, lambda: 0, current_stream)

        def work():
            while True:
                _core.cupy_malloc(8)

        threading.Thread(target=work, daemon=True).start()
        assert began.wait(10)
        sys.late = Late()
    """)


@needs_device
def test_numba_allocates_from_the_pool():
    pytest.importorskip("numba")
    run("""
        import warnings; warnings.simplefilter("ignore")
        import cistern.numba, cistern.cuda
        cistern.numba.enable()
        import numpy
        from numba import cuda

        x = cuda.to_device(numpy.arange(1000.0))
        y = cuda.as_cuda_array(cistern.cuda.empty(1000, "float64"))
        y.copy_to_device(x)
        assert (y.copy_to_host() == numpy.arange(1000.0)).all()
        assert cistern.cuda.stats()["acquires"] >= 2
        del x
        assert cistern.cuda.stats()["lent_buffers"]["now"] >= 1
    """)
