"""Text: the same score, with perturbations in embedding space. Models are tiny and never trained."""

import numpy as np
import pytest
import torch

import assay
from assay.mira import Tuning

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = "[PAD] [UNK] [CLS] [SEP] a the film was good bad long and not very".split()  # noqa: SIM905


def texts(count, seed):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS[4:], generator.integers(2, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def network():
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=len(WORDS),
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            initializer_range=0.5,
            max_position_embeddings=16,
        )
    )
    network = assay.Network.from_huggingface(model, tokenizer, max_length=16)
    logits = network.observe(texts(100, 2)).logits
    with torch.no_grad():  # both classes are to occur
        model.classifier.bias[0] -= (logits[:, 0] - logits[:, 1]).median()
    return network


@pytest.fixture(scope="module")
def data(network):
    """Labels are the network's own answers, so that it starts without an error."""
    parts = texts(200, 0), texts(90, 1)
    return [(part, network.observe(part).predictions) for part in parts]


def test_texts_get_a_score_over_a_range_in_embedding_space(network, data):
    result = assay.mira_score(network, *data, accuracy_threshold=0.75, steps=4, resamples=50)
    assert result.accuracy == 1
    assert result.dimensions == 8
    assert result.curve["accuracy"].iloc[0] <= 0.75
    assert np.isfinite(result.score)


def test_the_score_is_that_of_the_embeddings_moved_by_hand(network, data):
    train, (words, labels) = data
    result = assay.mira_score(
        network, train, (words, labels), epsilon_range=(0.2, 0.2), steps=1, resamples=10
    )
    embedded = network.embed(network.encode(words))
    direction = assay.faults.fgsm_direction(network, embedded, labels)
    moved = assay.faults.attacked(embedded, direction, 0.2, low=None, high=None)
    monitor = assay.monitors.Mahalanobis().fit(network.observe(train))
    clean, after = (
        assay.mira.surprisal(monitor.score(network.observe(inputs)).numpy(), 8).mean()
        for inputs in (embedded, moved)
    )
    assert result.score == pytest.approx(after / clean - 1, rel=1e-4)


def test_the_validation_takes_texts(network, data):
    validation = assay.validate_monitorability(
        {"one": network},
        *data,
        {"repeated": [" ".join(["good"] * 10)] * 20},
        tuning=Tuning(temperatures=[1000.0], magnitudes=[0.0, 0.01], inputs=30),
        epsilon_range=(0.1, 0.2),
        steps=2,
    )
    assert validation.detections["auroc"].between(0, 1).all()
