"""The training record inside the real Hugging Face Trainer and the real Lightning Trainer."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.volatility import lightning_callback, trainer_callback

ROWS, SIZE = 120, 120
"""One set is all rows, so that what was recorded can be held against the trained network itself."""


@pytest.fixture
def train_with_transformers(tmp_path):
    pytest.importorskip("accelerate", reason="the Hugging Face Trainer needs accelerate")
    transformers = pytest.importorskip("transformers")

    def train(epochs, learning_rate, patience=None):
        torch.manual_seed(0)
        tokens, labels = torch.randint(0, 20, (ROWS, 5)), torch.randint(0, 3, (ROWS,))
        config = transformers.BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
        config.num_labels = 3
        model = transformers.BertForSequenceClassification(config)
        record = assay.TrainingRecord(sets=1, size=SIZE)
        trainer = transformers.Trainer(
            model,
            transformers.TrainingArguments(
                tmp_path,
                num_train_epochs=epochs,
                learning_rate=learning_rate,
                per_device_train_batch_size=40,
                use_cpu=True,
                disable_tqdm=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
            ),
            train_dataset=[
                {"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)
            ],
            callbacks=[trainer_callback(record, ({"input_ids": tokens}, labels), patience)],
        )
        trainer.train()
        with torch.no_grad():
            logits = model.eval()(input_ids=tokens).logits
        return record.to_frame(), assay.Trace(logits, labels=labels)

    return train


@pytest.fixture
def train_with_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Classifier(lightning.LightningModule):
        def __init__(self, learning_rate):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))
            self.learning_rate = learning_rate
            self.training_seen = set()

        def forward(self, inputs):
            return self.layers(inputs)

        def training_step(self, batch, _):
            self.training_seen.add(self.layers[1].training)
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.learning_rate)

    def train(epochs, learning_rate, patience=None):
        torch.manual_seed(0)
        inputs, labels = torch.randn(ROWS, 4), torch.randint(0, 3, (ROWS,))
        module = Classifier(learning_rate)
        record = assay.TrainingRecord(sets=1, size=SIZE)
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            callbacks=[lightning_callback(record, (inputs, labels), patience)],
            default_root_dir=tmp_path,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, DataLoader(TensorDataset(inputs, labels), batch_size=40))
        assert module.training_seen == {True}, "observing must not leave dropout switched off"
        with torch.no_grad():
            return record.to_frame(), assay.Trace(module.eval()(inputs), labels=labels)

    return train


# Lightning warns of its own few workers and of torch names that torch has since deprecated.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("loop", "first"), [("transformers", 1), ("lightning", 0)])
def test_a_real_trainer_records_each_epoch_and_stops_on_log_vc(loop, first, request):
    train = request.getfixturevalue(f"train_with_{loop}")
    frame, trace = train(epochs=2, learning_rate=0.1)
    assert frame["epoch"].tolist() == [first, first + 1]
    assert frame["log_vc"][0] != frame["log_vc"][1]
    assert frame["log_vc"][1] == pytest.approx(np.log(assay.volatility_in_certainty(trace)), abs=1e-4)
    assert frame["accuracy"][1] == pytest.approx(float(trace.correct.double().mean()))
    # A network that does not learn reaches no new low: stopped two epochs after the first.
    assert len(train(epochs=6, learning_rate=0.0, patience=2)[0]) == 3
