"""One growing buffer per key: for loops that ask for the same few arrays again and again, in sizes
that change."""

import threading
from threading import get_ident

import numpy as np

from . import _core
from .errors import InvalidArgument
from .locks import give_lock
from .pool import Pool
from .stats import Explanation

_MEBIBYTE = 1024 * 1024
_float64 = np.dtype(np.float64)


class _Entry:
    """A key's buffer for one thread, and what was asked of it. The list holds its bytes: a grow can
    see who else does."""

    __slots__ = ("box", "ident", "hits", "misses", "grows")

    def __init__(self, array, ident):
        self.box = [array]
        self.ident = ident
        self.hits, self.misses, self.grows = 0, 1, 0


class KeyedPool:
    """Lends one array per key, which grows with the largest request and is kept until clear().

    A request that fits in the bytes of the key's buffer is a hit, whatever its shape and dtype; one
    that does not is a grow, and keeps the pages if nobody holds an array of the key. Every array is
    contiguous and stays valid for as long as it lives. Contents are whatever the last user left.

    A second thread that asks for a key gets an error, or, with same_key="own_buffer", a buffer of
    its own under that key. Thread-safe; made to live as long as the process.
    """

    def __init__(self, pool=None, *, same_key="error"):
        if same_key not in ("error", "own_buffer"):
            raise InvalidArgument(f"same_key is 'error' or 'own_buffer', not {same_key!r}")
        if pool is not None and not isinstance(pool, Pool):
            raise TypeError(f"pool is a cistern.Pool, not {type(pool).__name__!r}: {pool!r}")
        self.pool = Pool(name="keyed") if pool is None else pool
        self._same_key = same_key
        self._entries = {}  # key: [entries, one per thread]
        self._own = {}  # (thread's ident, key): its entry
        give_lock(self)

    def get_or_create(self, key, shape, dtype=_float64):
        """Returns the key's array in this shape and dtype. An error changes and counts nothing."""
        # What only the calling thread writes needs no lock.
        entry = self._own.get((get_ident(), key))
        if entry is not None:
            array = _core.view(entry.box[0], shape, dtype)
            if array is not None:
                entry.hits += 1
                return array
        wanted = _core.nbytes(shape, dtype)
        with self._lock:
            if entry is None:
                entry = self._find(key)
            if entry is None:
                entry = self._add(key, wanted)
            elif wanted <= entry.box[0].nbytes:
                entry.hits += 1
            else:
                self._grow(entry, wanted)
                entry.grows += 1
            return _core.view(entry.box[0], shape, dtype)

    def _find(self, key):
        """Returns an entry that the calling thread may take over, or None if it needs a new one."""
        entries = self._entries.get(key, ())
        # current_thread() adds those that Python did not start to the ones it counts.
        alive = {thread.ident for thread in threading.enumerate()}
        for entry in entries:
            if entry.ident not in alive:
                del self._own[entry.ident, key]
                entry.ident = threading.current_thread().ident
                self._own[entry.ident, key] = entry
                return entry
        if entries and self._same_key == "error":
            raise InvalidArgument(
                f"another thread uses the buffer of key {key!r}; "
                "KeyedPool(same_key='own_buffer') gives each thread its own"
            )
        return None

    def _add(self, key, wanted):
        entry = _Entry(self.pool.empty(wanted, np.uint8), threading.current_thread().ident)
        self._entries.setdefault(key, []).append(entry)
        self._own[entry.ident, key] = entry
        return entry

    def _grow(self, entry, wanted):
        if not (entry.box[0].nbytes and _core.grow(entry.box, wanted)):
            entry.box = [self.pool.empty(wanted, np.uint8)]

    def get_stats(self):
        """Returns {key: {"hits", "misses", "grows"}}, a copy."""
        with self._lock:
            return {
                key: {
                    name: sum(getattr(entry, name) for entry in entries)
                    for name in ("hits", "misses", "grows")
                }
                for key, entries in self._entries.items()
            }

    def get_memory_usage(self):
        """Returns {"total_mb", "buffers": {key: mb}}, in mebibytes."""
        with self._lock:
            buffers = {
                key: sum(entry.box[0].nbytes for entry in entries) / _MEBIBYTE
                for key, entries in self._entries.items()
            }
        return {"total_mb": sum(buffers.values()), "buffers": buffers}

    def explain(self):
        """Says what the pool holds and why, and what is lent under each key, most bytes first."""
        with self._lock:
            sizes = {
                key: [entry.box[0].nbytes for entry in entries if entry.box[0].nbytes]
                for key, entries in self._entries.items()
            }
        rows = [(str(key), len(parts), sum(parts)) for key, parts in sizes.items()]
        return Explanation(self.pool._explain(sorted(rows, key=lambda row: (-row[2], row[0]))))

    def clear(self):
        """Forgets every key, its buffers and its counts; arrays handed out stay valid."""
        with self._lock:
            self._entries.clear()
            self._own.clear()

    def keys(self):
        """Returns the keys asked for so far."""
        with self._lock:
            return list(self._entries)

    def __reduce__(self):
        return _from_options, (type(self), self.pool, self._same_key)

    def __repr__(self):
        usage = self.get_memory_usage()
        keys, mebibytes = len(usage["buffers"]), usage["total_mb"]
        return f"<cistern.{type(self).__name__}: {keys} keys, {mebibytes:.1f} MiB>"

    def _repr_html_(self):
        from .stats import _table

        usage = self.get_memory_usage()
        rows = [("key", ("MiB", "hits", "misses", "grows"))]
        for key, counts in self.get_stats().items():
            size = f"{usage['buffers'].get(key, 0.0):.1f}"
            rows.append((str(key), (size, *counts.values())))
        return _table(f"{usage['total_mb']:.1f} MiB", rows)


def _from_options(kind, pool, same_key):
    return kind(pool, same_key=same_key)
