"""Runs what docs/coming-from.md shows of another library, in an environment that has it.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install evidently scikit-learn
    /tmp/peer/bin/python benchmarks/coming_from.py evidently

The block is taken from the page as it stands; around it, scikit-learn's digits: 1,200 rows with labels, and
then 400 of today. Prints the versions, and what the last line of the block gives. assay need not be there.
"""

import argparse
import ast
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coming-from.md"
VERSIONS = ("pandas", "numpy", "scikit-learn", "torch")
BORDER, END = 1200, 1600


def block_of(library: str) -> str:
    """The first block of the library's section, which is the library's own code."""
    section = re.search(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S)
    assert section, f"no section {library} in {PAGE}"
    found = re.search(r"^```py\n(.*?)^```", section[1], re.M | re.S)
    assert found, f"no block in the section {library}"
    return found[1]


def digits() -> tuple[np.ndarray, np.ndarray]:
    inputs, labels = load_digits(return_X_y=True)
    return (inputs / 16).astype(np.float32), labels


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """64 columns of pixels, of reference and of today."""
    frame = pd.DataFrame(digits()[0], columns=[f"pixel{place}" for place in range(64)])
    return frame[:BORDER], frame[BORDER:END].reset_index(drop=True)


def evidently() -> dict[str, Any]:
    reference, current = tables()
    return {"reference": reference, "current": current}


def deepchecks() -> dict[str, Any]:
    before, after = tables()
    labels = digits()[1]
    model = LogisticRegression(max_iter=300).fit(before, labels[:BORDER])
    return {
        "train_frame": before.assign(target=labels[:BORDER]),
        "test_frame": after.assign(target=labels[BORDER:END]),
        "model": model,
    }


def nannyml() -> dict[str, Any]:
    import nannyml

    inputs, labels = digits()
    model = LogisticRegression(max_iter=300).fit(inputs[:600], labels[:600])
    predicted = pd.DataFrame(model.predict_proba(inputs), columns=[f"p{digit}" for digit in range(10)])
    predicted = predicted.assign(prediction=model.predict(inputs), target=labels)
    analysis = predicted[BORDER:].drop(columns="target")
    return {"nannyml": nannyml, "reference": predicted[600:BORDER], "analysis": analysis}


def alibi_detect() -> dict[str, Any]:
    inputs = digits()[0]
    return {"x_ref": inputs[:200], "stream": inputs[200:260]}


def pytorch_ood() -> dict[str, Any]:
    import torch

    inputs, labels = (torch.from_numpy(part) for part in digits())
    torch.manual_seed(0)
    known = torch.utils.data.TensorDataset(inputs[:BORDER], labels[:BORDER].long())
    return {
        "encoder": torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()).eval(),
        "train_loader": torch.utils.data.DataLoader(known, batch_size=100),
        "x": inputs[BORDER:END],
    }


def openood() -> dict[str, Any]:
    raise SystemExit("OpenOOD's block downloads its benchmarks, which this script does not")


LIBRARIES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "pytorch-ood": ("pytorch-ood", pytorch_ood),
    "OpenOOD": ("openood", openood),
    "NannyML": ("nannyml", nannyml),
    "alibi-detect": ("alibi-detect", alibi_detect),
    "Evidently": ("evidently", evidently),
    "deepchecks": ("deepchecks", deepchecks),
}


def value_of(code: str, names: dict[str, Any]) -> Any:
    """Runs the code; what its last line gives."""
    tree = ast.parse(code)
    *lines, last = tree.body
    exec(compile(ast.Module(lines, []), "block", "exec"), names)
    while isinstance(last, ast.For):  # of a loop, its last line after the whole of it
        exec(compile(ast.Module([last], []), "block", "exec"), names)
        last = last.body[-1]
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "block", "eval"), names)
    exec(compile(ast.Module([last], []), "block", "exec"), names)
    return names[last.targets[0].id] if isinstance(last, ast.Assign) else None


def version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library", choices=[name.lower() for name in LIBRARIES])
    wanted = parser.parse_args().library
    heading = next(name for name in LIBRARIES if name.lower() == wanted)
    package, names = LIBRARIES[heading]
    value = value_of(block_of(heading), names())
    print(", ".join(filter(None, map(version, (package, *VERSIONS)))))
    print(value)


if __name__ == "__main__":
    main()
