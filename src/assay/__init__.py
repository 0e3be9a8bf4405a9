"""assay: how far a neural network can be trusted when there are no labels.

The public names are listed in `__init__.pyi`, once. Each loads from its package on first use, so that
`import assay` is fast.
"""

import lazy_loader

from assay.version import VERSION as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
