"""Search by embeddings with graded judgments: nDCG@10 and BEIR's other metrics.

    python examples/semantic_search.py
    python examples/semantic_search.py beir/scifact --run run.trec

A directory holds a collection in BEIR's format: `corpus.jsonl`, `queries.jsonl` and
`qrels/test.tsv`. Without one, texts about a few topics are generated. The embedding of
a text is a sum over its words: replace `embed` by any encoder.

The results equal those of trec_eval on the full ranking of all documents.
"""

import argparse
import json
import os
import pathlib
import tempfile
import zlib

# Results are equal on all backends, and NumPy is always installed with Keras.
os.environ.setdefault("KERAS_BACKEND", "numpy")

import keras
import numpy as np

from keras_rank import catalogue, metrics, utils

FEATURES = 256


def generate(directory, documents=2000, queries=100, topics=40):
    """Writes a collection. Documents are relevant if they share topics with a query."""
    rng = np.random.default_rng(0)
    words = np.array([[f"w{topic}x{i}" for i in range(25)] for topic in range(topics)])

    def make_text(topic_pair, length):
        return " ".join(
            rng.choice(words[rng.choice(topic_pair, length)].ravel(), length)
        )

    document_topics = [rng.choice(topics, 2, replace=False) for _ in range(documents)]
    query_topics = [rng.choice(topics, 2, replace=False) for _ in range(queries)]
    with open(directory / "corpus.jsonl", "w") as file:
        for i, topic_pair in enumerate(document_topics):
            row = {
                "_id": f"d{i}",
                "title": f"Document {i}",
                "text": make_text(topic_pair, 40),
            }
            file.write(json.dumps(row) + "\n")
    with open(directory / "queries.jsonl", "w") as file:
        for i, topic_pair in enumerate(query_topics):
            file.write(
                json.dumps({"_id": f"q{i}", "text": make_text(topic_pair, 8)}) + "\n"
            )
    (directory / "qrels").mkdir()
    with open(directory / "qrels" / "test.tsv", "w") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for i, topic_pair in enumerate(query_topics):
            for j, other_pair in enumerate(document_topics):
                grade = len(set(topic_pair) & set(other_pair))
                if grade == 2 or (grade == 1 and rng.random() < 0.2):
                    file.write(f"q{i}\td{j}\t{grade}\n")


def read(path):
    """Returns the ids and the rows of a BEIR file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["_id"] for row in rows], rows


def embed(rows):
    """Returns the embedding of each text: the sum of a random vector per word."""
    embeddings = np.zeros((len(rows), FEATURES), "float32")
    for embedding, row in zip(embeddings, rows, strict=True):
        for word in f"{row.get('title', '')} {row['text']}".lower().split():
            seed = zlib.crc32(word.encode())
            embedding += np.random.default_rng(seed).normal(size=FEATURES)
    return embeddings


def main():
    """Prints the metrics, and the results for the first query."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, nargs="?")
    parser.add_argument("--run", type=pathlib.Path, help="a TREC run to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as generated:
        directory = arguments.directory or pathlib.Path(generated)
        if not arguments.directory:
            generate(directory)
        qrels = directory / "qrels" / "test.tsv"
        item_ids, items = read(directory / "corpus.jsonl")
        judged = {line.split("\t")[0] for line in qrels.read_text().splitlines()[1:]}
        _, queries = read(directory / "queries.jsonl")
        queries = [row for row in queries if row["_id"] in judged]
        query_ids = [row["_id"] for row in queries]
        targets = utils.targets_from_qrels(qrels, query_ids, item_ids)

    query_embeddings, item_embeddings = embed(queries), embed(items)
    # BEIR excludes the document whose id is that of the query.
    index_by_id = {item: index for index, item in enumerate(item_ids)}
    excluded = np.array([[index_by_id.get(query, -1)] for query in query_ids])
    results = catalogue.evaluate(
        targets,
        query_embeddings,
        item_embeddings,
        [
            metrics.NDCG(k=10, gain_fn="linear", name="nDCG@10"),
            metrics.MeanAveragePrecision(k=100, name="MAP@100"),
            metrics.RecallAtK(k=100, name="Recall@100"),
            metrics.MeanReciprocalRank(k=10, name="MRR@10"),
        ],
        score="cosine",
        exclude=excluded,
        verbose=0,
    )
    for name, value in results.items():
        print(f"{name:12}{value:.4f}")

    top_items = catalogue.top_k(
        query_embeddings, item_embeddings, k=100, score="cosine", exclude=excluded
    )
    scores, ids = map(keras.ops.convert_to_numpy, top_items)
    print(f"\n{queries[0]['text']}")
    for score, i in zip(scores[0, :3], ids[0, :3], strict=True):
        print(f"{score:8.3f}  {items[i].get('title', item_ids[i])}")
    if arguments.run:
        with arguments.run.open("w") as file:
            for query, *top_of_query in zip(query_ids, scores, ids, strict=True):
                for rank, (score, i) in enumerate(zip(*top_of_query, strict=True), 1):
                    if i >= 0:
                        row = query, "Q0", item_ids[i], rank, f"{score:.9g}", "run"
                        file.write(" ".join(map(str, row)) + "\n")


if __name__ == "__main__":
    main()
