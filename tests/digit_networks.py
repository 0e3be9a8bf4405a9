"""Networks trained on the bundled digits, in a module from which commands take them."""

from safetensors.torch import save_file

import assay
from assay.demo.networks import small_cnn, trained, wide_mlp

ARCHITECTURES = {"cnn": small_cnn, "mlp": wide_mlp}
MODULE = """
from pathlib import Path
from safetensors.torch import load_file
from assay.demo.networks import small_cnn, wide_mlp

def loaded(module, name):
    module.load_state_dict(load_file(Path(__file__).with_name(name)))
    return module

def cnn():
    return loaded(small_cnn(), "cnn.safetensors")

def mlp():
    return loaded(wide_mlp(), "mlp.safetensors")

def untrained():
    return wide_mlp()
"""


def write_networks(folder, module, names):
    """Train these for a few epochs, and write `module`.py beside their weights; a name that no other test
    uses, since Python keeps modules by their names."""
    for name in names:
        network = trained(ARCHITECTURES[name], assay.data.digits()[0], epochs=4)
        save_file(network.state_dict(), folder / f"{name}.safetensors")
    (folder / f"{module}.py").write_text(MODULE)
    return folder
