#!/usr/bin/env python3
"""Checks that what README.md and docs/ show is what examples/ holds.

A fenced block that follows a line `<!-- examples/x.cpp -->` or `<!-- examples/x.out -->` has to be
that file. `<!-- examples/x.cpp name -->` stands for the lines between `// [name` and `// ]` there
(in Fortran `! [name` and `! ]`, in Python `# [name` and `# ]`), without their common indentation. A block marked so that cannot be
found, and an example that no page shows, are errors too.

usage: check_docs.py [ROOT]     exits with 1 and says where if anything differs
       check_docs.py --self-test
"""

import difflib
import re
import sys
import tempfile
import textwrap
from pathlib import Path

MARK = re.compile(r"^<!-- (examples/[\w.]+)(?: (\w+))? -->$")
SOURCES = {".cpp", ".c", ".f90", ".rs"}
FENCE = re.compile(r"^```\w*$")


def part_of(text, name):
    """Returns the lines between `// [name` and `// ]`; None if there are none."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() in (f"// [{name}", f"! [{name}", f"# [{name}")]
    if len(starts) != 1:
        return None
    ends = [i for i in range(starts[0], len(lines)) if lines[i].strip() in ("// ]", "! ]", "# ]")]
    if not ends:
        return None
    return textwrap.dedent("\n".join(lines[starts[0] + 1 : ends[0]])).splitlines()


def check_page(root, page, shown):
    """Yields what is wrong with one page; adds the examples it shows to `shown`."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            if line.startswith("<!-- examples/"):
                yield f"{page.relative_to(root)}:{number + 1}: cannot read this mark: {line}"
            continue
        where = f"{page.relative_to(root)}:{number + 1}"
        source, name = mark.groups()
        if not (root / source).is_file():
            yield f"{where}: there is no {source}"
            continue
        text = (root / source).read_text(encoding="utf-8")
        expected = part_of(text, name) if name else text.splitlines()
        if expected is None:
            yield f"{where}: {source} has no one part '// [{name}' ... '// ]'"
            continue
        begin = number + 1
        if begin >= len(lines) or not FENCE.match(lines[begin]):
            yield f"{where}: no fenced block follows"
            continue
        end = next((i for i in range(begin + 1, len(lines)) if lines[i] == "```"), None)
        if end is None:
            yield f"{where}: the fenced block does not end"
            continue
        shown.add(source)
        difference = difflib.unified_diff(lines[begin + 1 : end], expected, where, source, lineterm="")
        if text_of_difference := "\n".join(difference):
            yield text_of_difference


def check(root):
    """Returns what is wrong, and the examples that pages show."""
    pages = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    shown = set()
    wrong = [error for page in pages for error in check_page(root, page, shown)]
    for example in sorted((root / "examples").iterdir()):
        if example.suffix not in SOURCES:
            continue
        if f"examples/{example.name}" not in shown:
            wrong.append(f"examples/{example.name} is shown on no page")
    return wrong, shown


def self_test():
    """Proves that each kind of error is found, and that a right page passes."""
    source = "int main() {\n    // [part\n    f();\n    // ]\n}\n"
    whole = f"<!-- examples/x.cpp -->\n```cpp\n{source}```\n"
    part = "<!-- examples/x.cpp part -->\n```cpp\nf();\n```\n"
    other = part.replace("x.cpp", "y.f90")
    cases = [
        (whole + part + other, 0),
        (whole.replace("f();", "g();") + other, 1),
        (part.replace("f();", "g();") + other, 1),
        (whole + other.replace("f();", "g();"), 1),
        (whole + other + part.replace("x.cpp part", "x.cpp other"), 1),
        (whole + other + part.replace("x.cpp", "y.cpp"), 1),
        (whole + other + "<!-- examples/x.cpp -->\nno block\n", 1),
        (whole + other + "<!-- examples/x.cpp-->\n", 1),
        ("nothing is shown\n", 2),
    ]
    for readme, errors in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "examples").mkdir()
            (root / "examples/x.cpp").write_text(source, encoding="utf-8")
            fortran = source.replace("//", "!")
            (root / "examples/y.f90").write_text(fortran, encoding="utf-8")
            (root / "README.md").write_text(readme, encoding="utf-8")
            found, _ = check(root)
            if len(found) != errors:
                sys.exit(f"expected {errors} errors, found {found} in:\n{readme}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    wrong, shown = check(root)
    for error in wrong:
        print(error)
    if wrong:
        sys.exit(1)
    print(f"{len(shown)} files of examples/ are shown as they are")


if __name__ == "__main__":
    main()
