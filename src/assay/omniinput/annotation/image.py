"""An input as an image embedded in a page."""

import base64
import io

import numpy as np

from assay.omniinput.sampling.figures import image_of


def image_address(pixels: np.ndarray, values: int) -> str:
    """A data address of (height, width) or (channels, height, width) pixels from 0 to values - 1."""
    from PIL import Image

    scaled = np.round(image_of(pixels) * (255 / max(values - 1, 1))).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(scaled).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
