"""NumPy itself on a pool: a memory handler (NEP 49) for arrays from a size on."""

import contextvars
import functools
import inspect

from . import _core
from .pool import _count, default_pool

DEFAULT_MIN_BYTES = 1024  # below, NumPy keeps a cache of its own

# The handlers that blocks have replaced, innermost first: (handler, the others). It lives in the
# context, as the handler does.
_before = contextvars.ContextVar("cistern_handlers_before", default=None)


class numpy_pool:
    """Makes NumPy take the memory of its arrays from a pool: `with cistern.numpy_pool():`.

    Every array of at least `min_bytes` that NumPy makes in the block comes from the pool,
    temporaries included; smaller ones come from NumPy's own allocator. Arrays may outlive the
    block. As NEP 49 says, the setting belongs to the current context (contextvars): threads started
    in the block have their own. Yields the pool.
    """

    def __init__(self, pool=None, *, min_bytes=DEFAULT_MIN_BYTES):
        self.pool = default_pool() if pool is None else pool
        if not isinstance(self.pool, _core.Pool):
            raise TypeError(f"pool is a cistern.Pool, not {type(pool).__name__!r}: {pool!r}")
        self._handler = self.pool._numpy_handler(_count("min_bytes", min_bytes))

    def __enter__(self):
        _before.set((_core.set_handler(self._handler), _before.get()))
        return self.pool

    def __exit__(self, *error):
        handler, before = _before.get()
        _before.set(before)
        _core.set_handler(handler)

    def __repr__(self):
        return f"<cistern.numpy_pool on {self.pool!r}>"


def enable_numpy(pool=None, *, min_bytes=DEFAULT_MIN_BYTES):
    """Makes NumPy take its memory from a pool in this context until disable_numpy(). Returns it."""
    serving = numpy_pool(pool, min_bytes=min_bytes)
    _core.set_handler(serving._handler)
    return serving.pool


def disable_numpy():
    """Makes NumPy use its own allocator again in this context. Arrays made before stay valid."""
    _core.set_handler(None)


def pooled(function=None, *, pool=None, min_bytes=DEFAULT_MIN_BYTES):
    """Serves NumPy from a pool for a block or for every call of a function.

        with cistern.pooled():           @cistern.pooled
            ...                          def step(u): ...

    Takes the arguments of numpy_pool: `@cistern.pooled(pool=mine, min_bytes=4096)`. Also decorates
    coroutine functions and generators.
    """
    block = _Pooled(numpy_pool(pool, min_bytes=min_bytes))
    return block if function is None else block(function)


class _Pooled:
    """A block, and a decorator; what pooled() returns."""

    def __init__(self, serving):
        self._serving = serving

    def __enter__(self):
        return self._serving.__enter__()

    def __exit__(self, *error):
        return self._serving.__exit__(*error)

    def __call__(self, function):
        if not callable(function):
            raise TypeError(f"pooled() decorates a function, not {function!r}")
        serving = self._serving
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_pool(*args, **kwargs):
                with serving:
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def in_pool(*args, **kwargs):
                generator = function(*args, **kwargs)
                value = None
                while True:  # only while the generator runs, not while its caller does
                    with serving:
                        try:
                            item = generator.send(value)
                        except StopIteration as stop:
                            return stop.value
                    value = yield item

        else:

            @functools.wraps(function)
            def in_pool(*args, **kwargs):
                with serving:
                    return function(*args, **kwargs)

        return in_pool
