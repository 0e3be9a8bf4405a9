"""Data: bundled digits that need no download, and readers that return (inputs, labels) or inputs alone.

Inputs are float32; images are in [0, 1], channels first. Labels are int64. `read` picks the reader, and so
does `read_inputs` for data without labels. `read_probabilities` is for what a network said of its inputs.
"""

from assay.data.bundled import digits
from assay.data.csv import read_csv
from assay.data.huggingface import read_huggingface
from assay.data.idx import read_idx
from assay.data.images import read_images
from assay.data.labelled import Labelled
from assay.data.npz import read_npz
from assay.data.saved_predictions import SavedPredictions, read_probabilities
from assay.data.source import read, read_inputs
from assay.data.tar import read_tar
from assay.data.text import read_text

__all__ = [
    "Labelled",
    "SavedPredictions",
    "digits",
    "read",
    "read_csv",
    "read_huggingface",
    "read_idx",
    "read_images",
    "read_inputs",
    "read_npz",
    "read_probabilities",
    "read_tar",
    "read_text",
]
