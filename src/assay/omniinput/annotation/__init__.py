"""Which inputs people judge, their labels, and how far they agree.

`choice` picks the items, `store` keeps items and labels in one file, `queue` decides who judges what next,
`formats` reads and writes labels, and `scores` checks them for the precision curve.
"""

from assay.omniinput.annotation.annotator_agreement import AnnotatorAgreement, annotator_agreement
from assay.omniinput.annotation.choice import choose_items
from assay.omniinput.annotation.formats import read_annotations, write_annotations
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.annotation.store import AnnotationStore

__all__ = [
    "AnnotationItems",
    "AnnotationStore",
    "AnnotatorAgreement",
    "annotator_agreement",
    "choose_items",
    "read_annotations",
    "write_annotations",
]
