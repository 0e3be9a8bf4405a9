"""One word for one idea, in the public interface and in the source: the words of docs/names.md."""

import ast
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

import assay
from assay import guard
from assay.omniinput import annotation, precision, sampling

SOURCE = Path(__file__).parents[1] / "src" / "assay"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# The packages whose `__all__` is public.
PACKAGES = [getattr(assay, name) for name in assay.__all__ if inspect.ismodule(getattr(assay, name))]
PACKAGES = [package for package in PACKAGES if hasattr(package, "__all__")]
PACKAGES += [guard, annotation, precision, sampling]

# word that must not stand for an idea in an argument or attribute -> the word for it
REPLACED = {
    "confidence": "level",
    "confidence_level": "level",
    "alpha": "level",
    "replicates": "resamples",
    "n_resamples": "resamples",
    "copies": "resamples",
    "centers": "centres",
    "color": "colour",
    "neighbors": "neighbours",
    "n_neighbors": "neighbours",
    "picture": "figure",
    "pictures": "figures",
    "drawing": "figure",
}

# In monitors, besides: what is kept is bounded by `limit`, and only a Guard has a threshold.
REPLACED_IN_MONITORS = REPLACED | {
    "sample": "limit",
    "samples": "limit",
    "threshold": "a name that says of what",
}

# Files that mean the same in every package that has one.
SHARED_FILES = {
    "__init__", "comparison", "convergence", "figures", "huggingface", "onnx", "result", "run", "settings",
    "text", "watch",
}  # fmt: skip

# The first argument of these may be positional: it is what the monitor is made of.
POSITIONAL = {"network", "networks", "members", "monitor", "predicate", "allowed", "detector"}

# Participles that leave open what was done to what.
VAGUE = {"_told", "_said", "_left", "_taken", "_given", "_made", "_done", "_got", "_put", "_set", "_gone"}


def public_values():
    """(name, value) of everything public that assay defines, each once."""
    seen = set()
    for package in (assay, *PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            if id(value) not in seen and not inspect.ismodule(value):
                seen.add(id(value))
                yield f"{package.__name__}.{name}", value


def is_method(value):
    return inspect.isfunction(value) or inspect.ismethod(value)


def public_callables():
    """(name, callable) of every public function, class and method."""
    for name, value in public_values():
        if inspect.isclass(value):
            yield name, value
            for method, function in inspect.getmembers(value, is_method):
                if not method.startswith("_") and function.__module__.startswith("assay."):
                    yield f"{name}.{method}", function
        elif inspect.isfunction(value):
            yield name, value


def attributes(cls):
    """Names of everything public that an instance carries."""
    for parent in cls.__mro__:
        if parent.__module__.startswith("assay."):
            yield from vars(parent)
            yield from inspect.get_annotations(parent)
            for node in ast.walk(ast.parse(inspect.getsource(parent))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    yield node.attr


def test_every_package_is_looked_at():
    assert {package.__name__ for package in PACKAGES} >= {
        f"assay.{name}"
        for name in (
            "accuracy",
            "benchmark",
            "faults",
            "mira",
            "monitors",
            "omniinput",
            "reshaping",
            "statistics",
        )
    }


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in public_callables()])
def test_arguments_use_the_one_word(name, value):
    try:
        arguments = inspect.signature(value).parameters
    except ValueError:  # an enumeration or a type of C
        return
    words = REPLACED_IN_MONITORS if name.startswith("assay.monitors.") else REPLACED
    wrong = {argument: words[argument] for argument in arguments if argument in words}
    assert not wrong, f"{name} takes {list(wrong)}; say {list(wrong.values())}"


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(*pair, id=pair[0]) for pair in public_values() if inspect.isclass(pair[1])],
)
def test_attributes_use_the_one_word(name, value):
    words = REPLACED_IN_MONITORS if name.startswith("assay.monitors.") else REPLACED
    wrong = {found: words[found.rstrip("_")] for found in attributes(value) if found.rstrip("_") in words}
    # The paper's own symbols, in fitted state and beside their equation.
    wrong = {
        found: word for found, word in wrong.items() if (name, found) != ("assay.monitors.ViM", "alpha_")
    }
    assert not wrong, f"{name} has {list(wrong)}; say {list(wrong.values())}"


def test_ends_of_intervals_are_lower_and_upper():
    columns = re.compile(r"""["'}]\w*_(low|high)["']""")
    found = [
        f"{path.relative_to(SOURCE)}: {match.group()}"
        for path in TREES
        if "faults" not in path.parts
        for match in columns.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_each_class_name_occurs_once():
    homes = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def test_a_file_name_means_one_thing():
    homes = defaultdict(list)
    for path in TREES:
        if "cli" not in path.relative_to(SOURCE).parts and "demo" not in path.relative_to(SOURCE).parts:
            homes[path.stem].append(str(path.relative_to(SOURCE)))
    assert not {
        stem: places for stem, places in homes.items() if len(places) > 1 and stem not in SHARED_FILES
    }


def test_private_names_explain_themselves():
    assert not [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        for name in [getattr(node, "name", None) or getattr(node, "attr", None)]
        if name in VAGUE
    ]


def test_nobody_asks_which_guard_or_which_run_it_is():
    """A guard is used by its protocol, `AnyGuard`; a run owns its `distribution()`."""
    kinds = {
        "Guard",
        "OnnxGuard",
        "Run",
        "Tempering",
        "Importance",
        "Multicanonical",
        "ImportanceThenTempering",
    }
    assert not [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if kinds & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    ]


def lines(node):
    return node.end_lineno - node.lineno + 1


def test_files_and_functions_stay_short():
    """400 lines and 60, in the benchmarks too."""
    benchmarks = sorted((SOURCE.parents[1] / "benchmarks").rglob("*.py"))
    trees = TREES | {path: ast.parse(path.read_text(encoding="utf-8")) for path in benchmarks}
    assert not [path for path, tree in trees.items() if tree.body and tree.body[-1].end_lineno > 400]
    assert not [
        f"{path}: {node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and lines(node) > 60
    ]


def code_lines(path):
    """(number, text) of every line of code but imports and brackets."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if re.search(r"\w", text) and not re.match(r"#|import |from \S+ import ", text):
            yield number, text


def test_no_six_lines_are_written_twice():
    places = defaultdict(list)
    for path in TREES:
        found = list(code_lines(path))
        for start in range(len(found) - 5):
            block = tuple(text for _, text in found[start : start + 6])
            places[block].append(f"{path.relative_to(SOURCE)}:{found[start][0]}")
    assert not [where for where in places.values() if len(where) > 1]


@pytest.mark.parametrize("name", sorted(assay.monitors.__all__))
def test_monitors_take_keywords(name):
    value = getattr(assay.monitors, name)
    positional = [
        parameter.name
        for parameter in inspect.signature(value).parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    # `fit_together` is no monitor: it takes several of them, and a stream.
    assert set(positional) <= POSITIONAL or name == "fit_together", f"{name} takes {positional} by position"
