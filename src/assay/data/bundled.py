"""Real data bundled with scikit-learn, so that examples and tests need no download."""

from torch import Tensor

from assay.data.arrays import Array, as_inputs
from assay.data.labelled import Labelled, numbered
from assay.errors import InputError

_WHITE = 16


def digits(seed: int = 0, test_share: float = 0.25) -> tuple[Labelled[Tensor], Labelled[Tensor]]:
    """1,797 handwritten digits as (train, test), each (inputs, labels).

    Inputs are float32 images of shape (N, 1, 8, 8) in [0, 1], labels are int64. `test_share` of each class
    goes to the test set; the split depends on `seed` alone.

    >>> train, test = digits()
    >>> train.inputs.shape, test.inputs.shape
    (torch.Size([1347, 1, 8, 8]), torch.Size([450, 1, 8, 8]))
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if not 0 < test_share < 1:
        raise InputError(
            f"expected a test_share between 0 and 1, got {test_share}; pass a share such as 0.25"
        )
    bundle = load_digits()
    classes = tuple(str(name) for name in bundle.target_names)
    try:
        parts = train_test_split(
            bundle.images, bundle.target, test_size=test_share, stratify=bundle.target, random_state=seed
        )
    except ValueError as error:
        raise InputError(
            f"cannot split {len(bundle.target)} digits with test_share={test_share}: {error}"
        ) from error
    train_images, test_images, train_labels, test_labels = parts

    def part(images: Array, labels: Array) -> Labelled[Tensor]:
        return Labelled(as_inputs(images, "digits", _WHITE), numbered(labels, len(images), "digits"), classes)

    return part(train_images, train_labels), part(test_images, test_labels)
