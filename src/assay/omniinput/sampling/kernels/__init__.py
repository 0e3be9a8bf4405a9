"""Markov kernels, one per file: `step(state, target, problem, generator) -> (state, info)`.

A kernel moves every row of a batch once and leaves the target distribution of each row unchanged. The state
(needed by the next step) is separate from the info (diagnostics). Detailed balance of every kernel is checked
by enumeration in the tests.
"""

from collections.abc import Callable

from assay.errors import InputError
from assay.omniinput.sampling.kernels.block import Block
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.kernels.crossover import Crossover
from assay.omniinput.sampling.kernels.hamiltonian import Hamiltonian
from assay.omniinput.sampling.kernels.informed import Informed
from assay.omniinput.sampling.kernels.langevin import Langevin
from assay.omniinput.sampling.kernels.learned import Learned
from assay.omniinput.sampling.kernels.shift import Shift
from assay.omniinput.sampling.kernels.single_site import SingleSite
from assay.omniinput.sampling.kernels.surrogate import Surrogate
from assay.omniinput.sampling.kernels.tilted import Tilted

KERNELS: dict[str, Callable[[], Kernel]] = {
    "single-site": SingleSite,
    "block": Block,
    "shift": Shift,
    "crossover": Crossover,
    "learned": Learned,
    "surrogate": Surrogate,
    "informed": Informed,
    "tilted": Tilted,
    "langevin": Langevin,
    "hamiltonian": Hamiltonian,
}

AUTO = ("learned", "surrogate", "crossover")


def kernels_of(choice: str | Kernel | list[str | Kernel] | tuple[str | Kernel, ...]) -> list[Kernel]:
    """The kernels asked for, by name or as objects; they take turns, at first equally often."""
    if choice == "auto":
        choice = list(AUTO)
    chosen = list(choice) if isinstance(choice, list | tuple) else [choice]
    unknown = [kernel for kernel in chosen if isinstance(kernel, str) and kernel not in KERNELS]
    if unknown or not chosen:
        raise InputError(
            f"expected kernels among {', '.join(KERNELS)} or 'auto', got {unknown or 'none'}; "
            "name one or several of them"
        )
    built = {name: KERNELS[name]() for name in chosen if isinstance(name, str)}
    return [built[kernel] if isinstance(kernel, str) else kernel for kernel in chosen]
