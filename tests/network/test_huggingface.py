"""Texts in: what the network reports is what transformers computes, whatever the batch and the padding.

Models are tiny, randomly initialised and built from a config; the tokenizers know a dozen words. Nothing is
downloaded.
"""

import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import assay
from assay.errors import AssayWarning, InputError, MissingExtraError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = "[PAD] [UNK] [CLS] [SEP] a the film was good bad long and not very".split()  # noqa: SIM905
TEXTS = [
    "a good film",
    "the film was very very long and not good",
    "bad",
    "the film was not bad",
    "not a very good film and very long",
]
LABELS = torch.tensor([1, 0, 0, 1, 0])

# Weights of the usual size 0.02 would give every text nearly the same logits, and hide mistakes.
SIZES = {"vocab_size": len(WORDS), "pad_token_id": 0, "num_labels": 3, "initializer_range": 0.5}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
ENCODERS = {
    "bert": lambda: transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, **SMALL, max_position_embeddings=32)
    ),
    # Numbers its positions from the token ids, starting after the padding id.
    "roberta": lambda: transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**SIZES, **SMALL, max_position_embeddings=34)
    ),
    "distilbert": lambda: transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            **SIZES, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=32
        )
    ),
}
DECODERS = {
    "gpt2": lambda: transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(**SIZES, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    ),
    "llama": lambda: transformers.LlamaForSequenceClassification(
        transformers.LlamaConfig(**SIZES, **SMALL, num_key_value_heads=2, max_position_embeddings=32)
    ),
}
# Single precision; trimmed and padded runs sum in another order.
TOLERANCE = 1e-5


def word_tokenizer(special):
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if special:
        words.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


@pytest.fixture(params=[*ENCODERS, *DECODERS])
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    torch.manual_seed(0)
    return (ENCODERS | DECODERS)[kind]().eval()


@pytest.fixture
def tokenizer(kind):
    return word_tokenizer(special=kind in ENCODERS)


def one_by_one(model, tokenizer, texts=TEXTS, **options):
    """Each text alone, so without any padding: logits and the hidden states of every layer."""
    logits, hidden = [], []
    for text in texts:
        tokens = tokenizer([text], return_tensors="pt", **options)
        with torch.no_grad():
            output = model(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                output_hidden_states=True,
            )
        logits.append(output.logits[0])
        hidden.append([state[0] for state in output.hidden_states])
    return torch.stack(logits), hidden


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_logits_are_those_of_each_text_alone(model, tokenizer, batch_size):
    network = assay.Network.from_huggingface(model, tokenizer, batch_size=batch_size)
    trace = network.observe((TEXTS, LABELS))
    expected, _ = one_by_one(model, tokenizer)
    assert torch.allclose(trace.logits, expected, atol=TOLERANCE)
    assert torch.equal(trace.labels, LABELS)
    assert expected.std(dim=0).min() > 1000 * TOLERANCE  # the texts do differ


LAYERS = {"bert": "bert.encoder.layer.0", "distilbert": "distilbert.transformer.layer.0"} | {
    "roberta": "roberta.encoder.layer.0",
    "gpt2": "transformer.h.0",
    "llama": "model.layers.0",
}


def test_a_sequence_layer_gives_the_first_token_of_encoders_and_the_last_of_decoders(kind, model, tokenizer):
    layer = LAYERS[kind]
    place = 0 if kind in ENCODERS else -1
    _, hidden = one_by_one(model, tokenizer)
    expected = torch.stack([states[1][place] for states in hidden])
    trace = assay.Network.from_huggingface(model, tokenizer, layer).observe(TEXTS)
    assert torch.allclose(trace.layer(layer), expected, atol=TOLERANCE)
    averaged = assay.Network.from_huggingface(model, tokenizer, layer, pool="mean").observe(TEXTS)
    assert torch.allclose(
        averaged.layer(layer), torch.stack([states[1].mean(0) for states in hidden]), atol=TOLERANCE
    )
    only_one = {"embedding": "mean"}
    assert torch.equal(
        assay.Network.from_huggingface(model, tokenizer, layer, pool=only_one).observe(TEXTS).layer(layer),
        trace.layer(layer),
    )


def test_penultimate_is_what_the_head_reads(kind, model, tokenizer):
    trace = assay.Network.from_huggingface(model, tokenizer).observe(TEXTS)
    head = {"bert": "classifier", "distilbert": "classifier", "roberta": "classifier.out_proj"}.get(
        kind, "score"
    )
    with torch.no_grad():
        logits = model.get_submodule(head)(trace.layer("penultimate"))
    assert torch.allclose(logits, trace.logits, atol=TOLERANCE)


def test_the_model_never_sees_columns_of_padding(model, tokenizer):
    widths = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda _, __, out: widths.append(out.shape[1])
    )
    assay.Network.from_huggingface(model, tokenizer, batch_size=2).observe(TEXTS)
    handle.remove()
    # Half of the calls look the embeddings up; the other half are the model's own.
    lengths = [len(row) for row in tokenizer(TEXTS)["input_ids"]]
    assert widths[1::2] == [max(lengths[:2]), max(lengths[2:4]), lengths[4]]


def test_gradients_are_those_of_each_text_alone_and_zero_on_padding(model, tokenizer):
    network = assay.Network.from_huggingface(model, tokenizer, max_length=16, batch_size=2)
    gradient = network.gradient(TEXTS, lambda trace: trace.logits[:, 1])
    assert gradient.shape == (len(TEXTS), 16, 16)
    for row, text in zip(gradient, TEXTS, strict=True):
        tokens = tokenizer([text], return_tensors="pt")["input_ids"]
        embeddings = model.get_input_embeddings()(tokens).detach().requires_grad_()
        # A single text has no padding to confuse, so transformers' own inputs_embeds is the truth.
        model(inputs_embeds=embeddings).logits[0, 1].backward()
        length = tokens.shape[1]
        assert torch.allclose(row[:length], embeddings.grad[0], atol=TOLERANCE)
        assert not row[length:].any()


def test_kept_inputs_are_embeddings_that_give_the_same_logits_again(model, tokenizer, tmp_path):
    network = assay.Network.from_huggingface(model, tokenizer, max_length=16)
    loader = DataLoader(list(zip(TEXTS, LABELS.tolist(), strict=True)), batch_size=2)
    trace = network.observe(loader, keep_inputs=True)
    assert trace.inputs["inputs_embeds"].shape == (5, 16, 16)
    assert torch.allclose(network(trace.inputs), trace.logits, atol=TOLERANCE)
    moved = {**trace.inputs, "inputs_embeds": -trace.inputs["inputs_embeds"]}
    assert not torch.allclose(network(moved), trace.logits, atol=0.01)
    assay.save(trace, tmp_path / "trace.safetensors")
    back = assay.load(tmp_path / "trace.safetensors")
    assert torch.allclose(network.observe(back.inputs).logits, trace.logits, atol=TOLERANCE)


def test_calls_are_differentiable_down_to_the_embeddings(model, tokenizer):
    network = assay.Network.from_huggingface(model, tokenizer)
    inputs = network.embed(network.encode(TEXTS))
    inputs["inputs_embeds"].requires_grad_()
    network(inputs).sum().backward()
    assert inputs["inputs_embeds"].grad.abs().sum() > 0


@pytest.fixture
def bert():
    torch.manual_seed(0)
    return ENCODERS["bert"]().eval(), word_tokenizer(special=True)


def test_every_form_of_data_gives_the_same_trace(bert):
    network = assay.Network.from_huggingface(*bert)
    expected = network.observe(TEXTS)
    tokens = bert[1](TEXTS, padding=True, return_tensors="pt")
    forms = {
        "pair": (TEXTS, LABELS),
        "reader's pair": assay.data.Labelled(TEXTS, LABELS),
        "loader of texts": DataLoader(TEXTS, batch_size=2),
        "loader of pairs": DataLoader(list(zip(TEXTS, LABELS, strict=True)), batch_size=2),
        "loader of dicts": DataLoader(
            [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)], batch_size=2
        ),
        "tokens": dict(tokens),
        "tokens and labels": {**tokens, "labels": LABELS},
    }
    for form, data in forms.items():
        trace = network.observe(data)
        assert torch.allclose(trace.logits, expected.logits, atol=TOLERANCE), form
        assert (trace.labels is not None) == (form not in ("tokens", "loader of texts")), form
    single = {"input_ids": bert[1](TEXTS[:1], return_tensors="pt")["input_ids"]}
    assert torch.allclose(network(single), expected.logits[:1], atol=TOLERANCE)


def test_many_texts_are_tokenised_in_parts(bert, monkeypatch):
    network = assay.Network.from_huggingface(*bert)
    whole = network.encode(TEXTS)
    monkeypatch.setattr("assay.network.huggingface._CHUNK", 2)
    parts = network.encode(TEXTS)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_long_texts_are_cut(bert):
    network = assay.Network.from_huggingface(*bert, max_length=5)
    expected, _ = one_by_one(*bert, truncation=True, max_length=5)
    assert torch.allclose(network.observe(TEXTS).logits, expected, atol=TOLERANCE)
    # The model has 32 positions; a longer text is cut there although max_length allows more.
    longest = assay.Network.from_huggingface(*bert, max_length=1000)
    assert longest.max_length == 32
    assert longest.observe(["film " * 100]).logits.isfinite().all()


def test_watching_the_embedding_layer_hears_what_the_model_went_on_with(bert):
    layer = "bert.embeddings.word_embeddings"
    network = assay.Network.from_huggingface(*bert, layers=layer)
    trace = network.observe(TEXTS, keep_inputs=True)
    moved = {**trace.inputs, "inputs_embeds": trace.inputs["inputs_embeds"] + 1}
    assert torch.allclose(network.observe(moved).layer(layer), trace.layer(layer) + 1)


def test_the_model_is_left_as_it_was_also_after_an_error(bert):
    model, tokenizer = bert
    model.train()
    network = assay.Network.from_huggingface(model, tokenizer)
    with pytest.raises(IndexError):
        network.observe({"input_ids": torch.tensor([[999]])})
    with pytest.raises((RuntimeError, ValueError)):
        network.observe({"input_ids": torch.ones(1, 40, dtype=torch.long)})
    network.observe(TEXTS)
    assert model.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("a film", "even for a single text"),
        ([1, 2, 3], "expected a list of texts"),
        (torch.zeros(2, 3), "expected a list of texts"),
        ({"words": torch.ones(2, 3), "mask": torch.ones(2, 3)}, r"got \['mask', 'words'\]"),
        ((TEXTS, LABELS[:2]), "5 inputs and 2 labels"),
    ],
)
def test_what_is_no_text_is_refused(bert, data, reason):
    with pytest.raises(InputError, match=reason):
        assay.Network.from_huggingface(*bert).observe(data)


def test_a_text_without_tokens_is_refused_where_the_tokenizer_adds_none():
    network = assay.Network.from_huggingface(DECODERS["gpt2"](), word_tokenizer(special=False))
    with pytest.raises(InputError, match="got none in text 1"):
        network.observe(["film", "", "film"])


def test_padded_embeddings_alone_are_refused_by_decoders():
    network = assay.Network.from_huggingface(DECODERS["gpt2"](), word_tokenizer(special=False))
    embeddings = torch.rand(1, 3, 16)
    assert network({"inputs_embeds": embeddings}).shape == (1, 3)
    with pytest.raises(InputError, match="from the padding"):
        network({"inputs_embeds": embeddings, "attention_mask": torch.tensor([[1, 1, 0]])})


def test_models_and_tokenizers_that_do_not_fit_are_refused(bert):
    model, tokenizer = bert
    gpt2 = DECODERS["gpt2"]()
    gpt2.config.pad_token_id = None
    t5 = transformers.T5Config(vocab_size=14, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    for arguments, reason in [
        ((nn.Linear(2, 2), tokenizer), "got Linear"),
        ((transformers.T5ForSequenceClassification(t5), tokenizer), "encoder-decoder"),
        ((gpt2, tokenizer), r"set model\.config\.pad_token_id"),
        ((model, "bert-base-uncased"), "got str"),
        ((model, tokenizer, "penultimate", 2), "above the 2 special tokens"),
        ((model, tokenizer, "nowhere"), r"\['nowhere'\]"),
    ]:
        with pytest.raises(InputError, match=reason):
            assay.Network.from_huggingface(*arguments)


def test_a_missing_package_names_the_line_that_installs_it(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'assay\[hf\]'"):
        assay.Network.from_huggingface(*bert)


class Judged(nn.Module):
    """A model whose output has other names, as custom heads have them."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config
        self.get_input_embeddings = model.get_input_embeddings

    def forward(self, **inputs):
        found = self.model(**inputs, output_hidden_states=True)
        return transformers.utils.ModelOutput(
            embedding=found.hidden_states[-1][:, 0], verdict=found.logits.softmax(dim=1)
        )


def test_outputs_are_chosen_and_read_as_in_any_network():
    model, tokenizer = ENCODERS["bert"]().eval(), word_tokenizer(special=True)
    expected = assay.Network.from_huggingface(model, tokenizer).observe(TEXTS)
    with pytest.raises(InputError, match=r"got 'embedding' \(5, 16\), 'verdict' \(5, 3\); choose one with"):
        assay.Network.from_huggingface(Judged(model), tokenizer).observe(TEXTS)
    with pytest.warns(AssayWarning, match="Judged returns probabilities"):
        trace = assay.Network.from_huggingface(Judged(model), tokenizer, output="verdict").observe(TEXTS)
    assert torch.allclose(trace.probabilities, expected.probabilities, atol=TOLERANCE)
    stated = assay.Network.from_huggingface(
        Judged(model), tokenizer, output="verdict", outputs="probabilities", label=1
    )
    assert torch.allclose(
        stated.observe(TEXTS).probabilities[:, 1], expected.probabilities[:, 1], atol=TOLERANCE
    )


def test_a_head_of_one_logit_is_two_classes():
    config = transformers.BertConfig(**SIZES | {"num_labels": 1}, **SMALL, max_position_embeddings=32)
    model, tokenizer = transformers.BertForSequenceClassification(config).eval(), word_tokenizer(special=True)
    network = assay.Network.from_huggingface(model, tokenizer, outputs="logits")
    trace = network.observe((TEXTS, LABELS))
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    encoded.pop("token_type_ids", None)
    with torch.no_grad():
        chances = model(**encoded).logits[:, 0].sigmoid()
    assert torch.allclose(trace.probabilities[:, 1].float(), chances, atol=TOLERANCE)
