"""The type stubs say what the package has: the same names, the same arguments."""

import ast
import inspect
from pathlib import Path

import cistern

STUB = ast.parse((Path(cistern.__file__).parent / "__init__.pyi").read_text())


def functions(body):
    return {
        node.name: node
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def arguments(node):
    names = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def actual_arguments(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in kinds and name not in ("self", "cls") and not name.startswith("_")
    ]


def test_the_stub_has_every_public_name():
    named = {getattr(node, "name", None) for node in STUB.body}
    named |= {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    named |= {
        alias.asname
        for node in STUB.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(cistern.__all__) <= named
    assert all(hasattr(cistern, name) for name in cistern.__all__)


def test_functions_have_the_arguments_of_the_stub():
    for name, node in functions(STUB.body).items():
        assert arguments(node) == actual_arguments(getattr(cistern, name)), name


def test_classes_have_the_members_of_the_stub():
    for node in STUB.body:
        if not isinstance(node, ast.ClassDef):
            continue
        kind = getattr(cistern, node.name)
        declared = functions(node.body)
        for name, function in declared.items():
            where = f"{node.name}.{name}"
            member = inspect.getattr_static(kind, name)
            if isinstance(member, property) or any(
                isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list
            ):
                continue
            assert arguments(function) == actual_arguments(getattr(kind, name)), where
        public = {
            name
            for name in vars(kind)
            if not name.startswith("_") and callable(getattr(kind, name))
        }
        fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
        fields |= {t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets}
        assert public <= set(declared) | fields, node.name
