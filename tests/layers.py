#!/usr/bin/env python3
"""Checks that the folders of src/ are layers.

    layers.py ROOT         checks ROOT/src and ROOT/include against the order in ROOT/src/README.md
    layers.py --self-test  checks that each kind of violation is noticed

A file in src/ may include public headers ("cistern/x.hpp"), its own folder and the folders before
it in the order, always as "folder/x.hpp". A public header may include public headers only.
Prints one line per violation and exits with 1 if there is any.
"""

import re
import sys
import tempfile
from pathlib import Path

LAYER = re.compile(r"^\d+\. \*\*`(\w+)/`\*\*", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(cistern/[^>]+)>)', re.MULTILINE)
SOURCES = {".cpp", ".hpp", ".h"}


def sources_in(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


def included_by(path):
    return [quoted or angled for quoted, angled in INCLUDE.findall(path.read_text())]


def violations(root):
    """Returns one sentence per violation; raises ValueError if the order cannot be read."""
    order = LAYER.findall((root / "src/README.md").read_text())
    if not order:
        raise ValueError("src/README.md lists no layers")

    found = []
    for path in sources_in(root / "src"):
        name = path.relative_to(root)
        layer = name.parts[1]
        if layer not in order:
            found.append(f"{name}: lies in no layer; src/README.md lists {', '.join(order)}")
            continue
        allowed = ["cistern", *order[: order.index(layer) + 1]]
        for include in included_by(path):
            target = include.split("/")[0] if "/" in include else None
            if target not in ["cistern", *order]:
                found.append(f'{name}: write "{include}" as "folder/file.hpp"')
            elif target not in allowed:
                found.append(f'{name}: {layer} may not include "{include}"')

    for path in sources_in(root / "include"):
        for include in included_by(path):
            if not include.startswith("cistern/"):
                name = path.relative_to(root)
                found.append(f'{name}: a public header may not include "{include}"')
    return found


def self_test():
    """Builds a small tree, breaks each rule in turn and expects exactly one violation."""
    readme = "1. **`base/`** a\n2. **`memory/`** b\n3. **`pool/`** c\n"
    legal = {
        "src/memory/host.cpp": '#include "memory/host.hpp"\n#include "base/bytes.hpp"\n'
                               "#include <vector>\n",
        "include/cistern/pool.hpp": '#include "cistern/memory.hpp"\n',
    }
    cases = {
        "nothing": ({}, 0),
        "a layer above": ({"src/base/bytes.hpp": '#include "memory/host.hpp"\n'}, 1),
        "with spaces": ({"src/memory/a.cpp": '  #  include "pool/core.hpp"\n'}, 1),
        "one of two": (
            {"src/memory/a.cpp": '#include "base/bytes.hpp"\n#include "pool/core.hpp"\n'}, 1),
        "a relative path": ({"src/pool/core.cpp": '#include "../memory/host.hpp"\n'}, 1),
        "no folder": ({"src/pool/core.cpp": '#include "core.hpp"\n'}, 1),
        "an unknown folder": ({"src/extra/x.cpp": "#include <vector>\n"}, 1),
        "a public header": ({"include/cistern/x.hpp": '#include "base/bytes.hpp"\n'}, 1),
    }
    for case, (files, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {"src/README.md": readme, **legal, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = violations(root)
        if len(found) != expected:
            sys.exit(f"{case}: expected {expected} violations, found {found}")
    print(f"{len(cases)} cases noticed as they should be")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = violations(Path(sys.argv[1]))
    print("\n".join(found) or "every include respects the order of src/README.md")
    return sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
