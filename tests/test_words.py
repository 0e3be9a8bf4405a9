"""One word for one idea, in the public interface and in the source: the words of docs/names.md."""

import ast
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

import assay

SOURCE = Path(__file__).parents[1] / "src" / "assay"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}

# idea -> (the word, words that must not stand for it in an argument)
REPLACED = {
    "confidence": "level",
    "confidence_level": "level",
    "alpha": "level",
    "replicates": "resamples",
    "n_resamples": "resamples",
    "neighbors": "neighbours",
    "centers": "centres",
    "color": "colour",
}

# Files that mean the same in every room that has one.
SHARED_FILES = {
    "__init__", "comparison", "convergence", "figures", "huggingface", "onnx", "result", "run", "settings",
    "text", "watch",
}  # fmt: skip

# The first argument of these may be positional: it is what the monitor is made of.
POSITIONAL = {"network", "networks", "members", "monitor", "predicate", "allowed", "detector"}


def public_callables():
    """(name, callable) of every public function, class and method that assay defines."""
    spaces = [(assay, name) for name in assay.__all__] + [
        (assay.monitors, name) for name in assay.monitors.__all__
    ]
    for space, name in spaces:
        value = getattr(space, name)
        if inspect.isclass(value):
            yield f"{name}", value
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("assay."):
                    yield f"{name}.{method}", function
        elif inspect.isfunction(value):
            yield name, value


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in public_callables()])
def test_arguments_use_the_one_word(name, value):
    try:
        arguments = inspect.signature(value).parameters
    except ValueError:  # an enumeration or a type of C
        return
    wrong = {argument: REPLACED[argument] for argument in arguments if argument in REPLACED}
    assert not wrong, f"{name} takes {list(wrong)}; say {list(wrong.values())}"


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


def lines(node):
    return node.end_lineno - node.lineno + 1


def test_files_and_functions_stay_short():
    """400 lines and 60, in the benchmarks too."""
    benchmarks = sorted((SOURCE.parents[1] / "benchmarks").rglob("*.py"))
    trees = TREES | {path: ast.parse(path.read_text(encoding="utf-8")) for path in benchmarks}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert not [path for path, tree in trees.items() if tree.body and tree.body[-1].end_lineno > 400]
    assert not [
        f"{path}: {node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, functions) and lines(node) > 60
    ]


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
