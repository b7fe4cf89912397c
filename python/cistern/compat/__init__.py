"""The pools that Cistern replaces, under their own names.

    import cistern
    cistern.compat.install("pycsa")

After this line, applications that import pycsa's or pydotcompute's pool get Cistern's, unchanged,
whether or not the package itself is installed.
"""

import importlib
import importlib.util
import sys
import types

from ..errors import InvalidArgument
from . import pycsa, pydotcompute  # noqa: F401

_MODULES = {
    "pycsa": ("core.buffer_pool",),
    "pydotcompute": ("core.memory_pool", "core.unified_buffer"),
}
# Modules that ours stand in for only where the package itself is missing.
_STAND_INS = {"pycsa": (), "pydotcompute": ("exceptions",)}


def install(package: str) -> types.ModuleType:
    """Makes `import pycsa...` or `import pydotcompute...` find Cistern's. Returns the module."""
    if package not in _MODULES:
        raise InvalidArgument(f"compat knows {', '.join(map(repr, _MODULES))}, not {package!r}")
    ours = importlib.import_module(f"{__name__}.{package}")
    before = {
        name: vars(sys.modules[name])
        for name in (f"{package}.{module}" for module in _MODULES[package])
        if name in sys.modules
    }
    replaced = {
        id(old[name]): (old[name], getattr(_ours(package, module), name))
        for module in _MODULES[package]
        for old in [before.get(f"{package}.{module}", {})]
        for name in _ours(package, module).__all__
        if name in old
    }
    for module in _MODULES[package]:
        sys.modules[f"{package}.{module}"] = _ours(package, module)
    if not _exists(package):
        for module in _STAND_INS[package]:
            sys.modules[f"{package}.{module}"] = _ours(package, module)
        _add_packages(package, ours)
    _rebind(package, replaced)
    for module in _MODULES[package] + (() if _exists(package) else _STAND_INS[package]):
        parent, _, name = f"{package}.{module}".rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], name, sys.modules[f"{package}.{module}"])
    return ours


def _ours(package, module):
    return importlib.import_module(f"{__name__}.{package}.{module}")


def _exists(package):
    """Returns whether the package itself is installed."""
    module = sys.modules.get(package)
    if module is not None:
        return not getattr(module, "__cistern__", False)
    return importlib.util.find_spec(package) is not None


def _add_packages(package, ours):
    """Adds stand-ins for the package and its subpackages, with what ours exports."""
    for name in (package, f"{package}.core"):
        if name in sys.modules:
            continue
        module = types.ModuleType(name, f"Stands in for {name}: the pool is Cistern's.")
        module.__path__ = []
        module.__cistern__ = True
        for export in ours.__all__:
            setattr(module, export, getattr(ours, export))
        sys.modules[name] = module
    sys.modules[package].core = sys.modules[f"{package}.core"]


def _rebind(package, replaced):
    """Replaces names that modules of the package bound before."""
    for name, module in list(sys.modules.items()):
        if module is None or not (name == package or name.startswith(package + ".")):
            continue
        for attribute, value in list(vars(module).items()):
            old_and_new = replaced.get(id(value))
            if old_and_new is not None and old_and_new[0] is value:
                setattr(module, attribute, old_and_new[1])
