"""TrainingRecord inside the training loops of other packages, which are imported only when asked for."""

import importlib
from typing import Any

from assay.extras import expect_installed
from assay.network import Network
from assay.volatility.training import TrainingRecord


def lightning_callback(record: TrainingRecord, validation: Any, patience: int | None = None) -> Any:
    """A Lightning `Callback` that records after each training epoch and may stop training.

    `validation` is what `Network.observe` takes; the LightningModule's forward must return logits.
    """
    expect_installed("lightning")
    lightning: Any = importlib.import_module("lightning.pytorch")

    class LightningRecorder(lightning.Callback):  # type: ignore[misc]
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            after_epoch = record.callback(Network(module, layers=()), validation, patience)
            trainer.should_stop = after_epoch(trainer.current_epoch) or trainer.should_stop

    return LightningRecorder()


def trainer_callback(record: TrainingRecord, validation: Any, patience: int | None = None) -> Any:
    """A `TrainerCallback` for the Hugging Face Trainer that records after each epoch and may stop training.

    `validation` is (dict of tensors, labels), or whatever else `Network.observe` takes for the model.
    """
    expect_installed("transformers")
    transformers: Any = importlib.import_module("transformers")

    class TrainerRecorder(transformers.TrainerCallback):  # type: ignore[misc]
        def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            after_epoch = record.callback(Network(others["model"], layers=()), validation, patience)
            control.should_training_stop = after_epoch(round(state.epoch)) or control.should_training_stop
            return control

    return TrainerRecorder()
