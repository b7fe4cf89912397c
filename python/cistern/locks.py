"""Locks of objects that survive a fork: the child may be born while another thread holds one."""

import os
import threading
import weakref

_owners: "weakref.WeakSet[object]" = weakref.WeakSet()


def give_lock(owner):
    """Gives an object its `_lock`, and a new one in every forked child."""
    owner._lock = threading.RLock()
    _owners.add(owner)


def _renew():
    for owner in list(_owners):
        owner._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)
