"""Writes the measured figures and charts into the pages.

    python benchmarks/figures.py

A page marks the place: between `<!-- figures: NAME -->` and `<!-- end of figures -->`
goes what the function NAME returns for `benchmarks/results`, which `make bench` writes.
"""

import hashlib
import json
import math
import pathlib
import re
import textwrap

import charts

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TITLES = {
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "numpy": "NumPy",
}
PAGES = [
    "README.md",
    "docs/speed.md",
    "docs/loops.md",
    "docs/accelerators.md",
    "docs/catalogues.md",
]
CHARTS = {"docs/speed.png": charts.per_list, "docs/catalogues.png": charts.sizes}
END = "<!-- end of figures -->"
BLOCK = re.compile(
    rf"^<!-- figures: (?P<name>\w+) -->\n.*?^{END}$", re.DOTALL | re.MULTILINE
)


def results():
    """Returns the measurements by file name, those of the backends first."""
    names = [*TITLES, "calls", "tables", "catalogue_sizes"]
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in names}


def rendered(page, found):
    """Returns a page with its figures filled in."""

    def block(match):
        start = f"<!-- figures: {match['name']} -->"
        return f"{start}\n\n{BLOCKS[match['name']](found)}\n\n{END}"

    return BLOCK.sub(block, page)


def digest(found):
    """Returns a hash of a chart's figures: an image with another one is stale."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def charted(found):
    """Returns the figures of each chart."""
    by_backend = [{**found[name], "title": title} for name, title in TITLES.items()]
    return {
        "docs/speed.png": [
            {key: each[key] for key in ("title", "cores", "per_list")}
            | {"date": each["dates"]["per_list"]}
            for each in by_backend
        ],
        "docs/catalogues.png": found["catalogue_sizes"],
    }


def main():
    found = results()
    for name in PAGES:
        page = ROOT / name
        page.write_text(rendered(page.read_text(), found))
    for name, figures in charted(found).items():
        metadata = {"Description": digest(figures)}
        CHARTS[name](figures).savefig(ROOT / name, metadata=metadata)


def short(number):
    """Two significant digits, or a whole number."""
    if abs(number) >= 9.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 0.995 else f"{float(f'{number:.2g}')}"


def two_digits(number):
    """Two significant digits, however small."""
    return short(number) if number >= 1 else f"{number:.{1 - digits(number)}f}"


def digits(number):
    """The exponent of its first significant digit."""
    return math.floor(math.log10(float(f"{number:.2g}")))


def span(numbers):
    least, most = short(min(numbers)), short(max(numbers))
    return least if least == most else f"{least} to {most}"


def million(number):
    return f"{short(number / 1e6)} million"


def joined(texts):
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def paragraph(text):
    return textwrap.fill(" ".join(text.split()), 88, break_on_hyphens=False)


def item(text):
    text = " ".join(text.split())
    return textwrap.fill(
        f"- {text}", 88, subsequent_indent="  ", break_on_hyphens=False
    )


def table(columns, rows, corner=""):
    lines = [[corner, *columns], ["---"] * (len(columns) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def by_backend(found, cell, names=tuple(TITLES)):
    """Returns a cell for each backend."""
    return [cell(found[name]) for name in names]


def shape(name):
    """Formats `1024 x 100, 10` for a reader."""
    sizes, *k = name.split(", ")
    lists, items = (int(size) for size in sizes.split(" x "))
    return ", ".join([f"{lists} × {items if items < 10_000 else f'{items:,}'}", *k])


TRAINING = ("jax", "tensorflow", "torch")
# Of `passes`.
ONE_TARGET = "256 x 100000, 10, 1"


def cost(found):
    shapes = {
        "256 x 1000, 10": "NDCG@10 of 256 lists of 1,000 items",
        "1024 x 100, 10": "NDCG@10 of 1,024 lists of 100 items",
        "256 x 1000, all": "NDCG of 256 lists of 1,000 items, without a cutoff",
    }
    rows = [
        [
            title,
            *by_backend(
                found,
                lambda each, name=name: (
                    f"{short(each['update'][name]['ms'])} ms, "
                    f"{short(each['update'][name]['keras-rs'])}x"
                ),
            ),
        ]
        for name, title in shapes.items()
    ]
    rows.append(
        [
            "HitRate@10 of ids among 100,000 items, in maxima of all scores",
            *by_backend(found, lambda each: short(each["passes"][ONE_TARGET])),
        ]
    )
    added = [f"{max(found[b]['fitting'], 0):.0f}%" for b in TRAINING]
    compiling = [f"{found[b]['first_epoch']['NDCG@10']:.2f} s" for b in TRAINING]
    rows.append(["NDCG@10 in `fit`, longer epochs by", *added, "-"])
    rows.append(["the first epoch, which compiles, by another", *compiling, "-"])
    return table(TITLES.values(), rows)


def caption(found):
    dates = sorted({found[b]["dates"]["per_list"] for b in TITLES})
    return paragraph(
        f"""Time per list of one update of NDCG@10, on {found["numpy"]["cores"]} CPU
        cores, measured on {joined(dates)}. `make bench` repeats it on your machine."""
    )


def setting(found):
    versions = [f"Keras {found['jax']['versions']['keras']}"]
    versions += [f"{TITLES[b]} {found[b]['versions'][b]}" for b in TITLES]
    dates = sorted({date for name in TITLES for date in found[name]["dates"].values()})
    days = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    return paragraph(
        f"""All times were measured on one machine with {found["numpy"]["cores"]}
        cores, {days}: {", ".join(versions)}."""
    )


def update(found):
    rows = [
        [
            shape(name),
            *by_backend(
                found,
                lambda each, name=name: (
                    f"{short(each['update'][name]['ms'])}, "
                    f"{short(each['update'][name]['keras-rs'])}x"
                ),
            ),
        ]
        for name in found["numpy"]["update"]
    ]
    longest = "64 x 100000, 10"
    sums = [
        f"{short(found[b]['update'][longest]['ms of the sum'])} ms on {title}"
        for b, title in TITLES.items()
    ]
    return "\n".join(
        [
            table(TITLES.values(), rows, "lists × items, k"),
            "",
            paragraph(
                f"""Summing the labels and the scores of {shape(longest)[:-4]} takes
                {joined(sums)}."""
            ),
        ]
    )


def inputs(found):
    kinds = {
        "tied": "scores with one decimal: ties everywhere",
        "average": '`"average"`, no ties',
        "average, tied": '`"average"`, ties everywhere',
        "padded": "90% padding",
    }
    return table(
        TITLES.values(),
        [
            [
                title,
                *by_backend(
                    found,
                    lambda each, kind=kind: span(
                        [of_shape[kind] for of_shape in each["update"].values()]
                    ),
                ),
            ]
            for kind, title in kinds.items()
        ],
    )


def peers(found):
    rows = []
    for backend in ("jax", "torch", "numpy"):
        for name, times in found[backend]["per_list"].items():
            others = [
                f"{peer}: {short(time)}"
                for peer, time in times.items()
                if peer.split()[0] not in ("keras_rank", "keras-rs")
            ]
            rows.append(
                [
                    f"{shape(name)}, {TITLES[backend]}",
                    short(times["keras_rank"]),
                    ", ".join(others),
                ]
            )
    return table(["ours", "others"], rows, "lists × items")


def instead(found):
    def cells(name, ratio):
        return by_backend(found, lambda each: short(each["instead"][name][ratio]))

    rows = [[shape(name), *cells(name, "naive")] for name in found["numpy"]["instead"]]
    small = "32 x 20"
    rows.append([f"{shape(small)}, of Keras's metric", *cells(small, "Keras")])
    return table(TITLES.values(), rows, "lists × items")


def groups(found):
    rows = [
        [
            shape(name),
            *by_backend(found, lambda each, name=name: short(each["groups"][name])),
        ]
        for name in found["numpy"]["groups"]
    ]
    return table(TITLES.values(), rows, "lists × items")


def busy(found):
    def cells(name, library):
        for backend in TITLES:
            of_shape = found[backend]["busy"][name]
            quiet, loaded = (of_shape[state][library] for state in ("quiet", "busy"))
            yield f"{short(loaded)}, {short(loaded / quiet)}x"

    rows = [
        [f"{shape(name)}{title}", *cells(name, library)]
        for name in found["numpy"]["busy"]
        for library, title in enumerate(("", ", keras-rs"))
    ]
    return table(TITLES.values(), rows, "lists × items")


def memory(found):
    ours, theirs = (
        joined(
            [f"{title} {found[b]['memory'][name]:.2f}" for b, title in TITLES.items()]
        )
        for name in ("keras_rank", "keras_rs")
    )
    return paragraph(
        f"""Memory of one update of 64 × 100,000, k=10, beyond its inputs, as a multiple
        of the size of one input: {ours}. For keras-rs: {theirs}."""
    )


def first_epoch(found):
    rows = {
        "NDCG@10": "NDCG@10",
        "keras-rs": "NDCG@10 of keras-rs",
        "four": "four metrics",
        "group of four": "four as a group",
        "keras-rs, four": "four of keras-rs",
    }
    return table(
        [TITLES[b] for b in TRAINING],
        [
            [
                title,
                *by_backend(
                    found,
                    lambda each, n=name: f"{each['first_epoch'][n]:.2f}",
                    TRAINING,
                ),
            ]
            for name, title in rows.items()
        ],
    )


def grouped_rows(found):
    ratios = [
        f"{found[backend]['grouped_rows']:.2f} on {TITLES[backend]}"
        for backend in TRAINING
    ]
    return (
        "Of 50,000 rows of 32 features in lists of about 50, predicted in batches of\n"
        "128, NDCG@10 and MRR by `GroupedEvaluation` take, as multiples of `predict`:\n"
        f"{', '.join(ratios)}."
    )


def catalogues(found):
    items = found["numpy"]["from_file"]["items"]
    rows = {
        "one target, relative to the products": lambda each: each["catalogues"]["one"],
        "ten targets, relative to one": lambda each: (
            each["catalogues"]["ten"] / each["catalogues"]["one"]
        ),
        "top 100 of a stream by hand, relative to the products": lambda each: each[
            "catalogues"
        ]["top 100"],
        "`catalogue.top_k` of 100, relative to the products": lambda each: each[
            "catalogues"
        ]["top_k(100)"],
        f"1,024 queries among {million(items)} items in a file, s": lambda each: each[
            "from_file"
        ]["seconds"],
        "the memory for that, MB": lambda each: each["from_file"]["MB"],
    }
    return table(
        TITLES.values(),
        [
            [title, *by_backend(found, lambda each, cell=cell: short(cell(each)))]
            for title, cell in rows.items()
        ],
    )


def passes(found):
    rows = {
        ONE_TARGET: "HitRate@10, one target of 256 × 100,000",
        "256 x 100000, 10, 10": "HitRate@10, ten targets of 256 × 100,000",
        "256 x 100000, all, 1": "MRR, one target of 256 × 100,000",
        "512 x 20000, 10, 1": "HitRate@10, one target of 512 × 20,000",
    }
    return table(
        TITLES.values(),
        [
            [
                title,
                *by_backend(found, lambda each, name=name: short(each["passes"][name])),
            ]
            for name, title in rows.items()
        ],
    )


def counting_cost(found):
    ratios = by_backend(found, lambda each: each["catalogues"]["one"])
    return paragraph(
        f"""The product of all queries and all items, and a comparison: together
        {span(ratios)} times the time of the product
        ([measured](speed.md#whole-catalogues-and-training)). The cutoffs don't matter,
        and each further metric is nearly free."""
    )


def counting_chart(found):
    times = [
        of_size[max(set(of_size), key=int)]
        for of_size in found["catalogue_sizes"]["seconds"].values()
    ]
    counting, stream, matrix = (short(time) for time in times)
    return (
        f"![At the largest size, counting takes {counting} s and a stream of the top "
        f"100 {stream} s; the matrix takes {matrix} s on fewer items](catalogues.png)"
    )


def many_targets(found):
    def cell(backend, name):
        of_case = backend["many_targets"][name]
        return f"{short(of_case['seconds'])}, {short(of_case['ratio'])}x"

    rows = {
        "as MS MARCO": "7,000 queries with 1 target, 65,536 items",
        "as TREC": "50 queries with 500 targets, 262,144 items",
        "as ratings": "6,000 users with 30 to 900 targets, 8,192 items",
        "1,000 users, 1,000 each": "1,000 users with 1,000 targets, 100,000 items",
        "one of 1,000 has 1,000": "999 users with 1 target, 1 with 1,000, 5,000 items",
    }
    return table(
        TITLES.values(),
        [
            [title, *by_backend(found, lambda each, name=name: cell(each, name))]
            for name, title in rows.items()
        ],
    )


def calls(found):
    columns = {
        "first": "first",
        "new shape": "new shape",
        "steady": "steady state",
        "20 ragged": "20 ragged batches",
    }

    def cell(times, name):
        return ", ".join(two_digits(each[name]) for each in times.values())

    return table(
        columns.values(),
        [
            [title, *(cell(found["calls"][backend], name) for name in columns)]
            for backend, title in TITLES.items()
        ],
    )


def fitting(found):
    added = [f"{max(found[b]['fitting'], 0):.0f}% on {TITLES[b]}" for b in TRAINING]
    return paragraph(
        f"""With NDCG@10, an epoch of `fit` on lists of 100 items (two layers of 128
        units, 50 features) takes longer by {joined(added)}."""
    )


def tables(found):
    small, large = (found["tables"][n] for n in sorted(found["tables"], key=int))
    seconds = {n: short(small[n]["seconds"]) for n in ("ours", "pytrec_eval", "ranx")}
    return paragraph(
        f"""{million(small["rows"])} shuffled rows of 50,000 queries, from a Parquet
        file to the summary of NDCG@10, MAP and MRR, including all checks of
        `health`: {seconds["ours"]} s. pytrec_eval takes {seconds["pytrec_eval"]} s,
        mostly to build its dicts, and ranx {seconds["ranx"]} s.
        {million(large["rows"])} rows with `memory_limit="2GB"`:
        {short(large["ours"]["seconds"])} s, at a peak of
        {large["ours"]["GB"]:.2f} GB."""
    )


def counts(found):
    rows = {
        "NDCG@10": "`NDCG(k=10)`",
        "tied": "`NDCG(k=10)`, tied items",
        "keras-rs": "`NDCG(k=10)` of keras-rs",
        "average": '`NDCG(k=10, shuffle_ties="average")`',
        "average, tied": "the same, tied items",
        "NDCG": "`NDCG()`",
        "nine as a group": (
            "nine metrics as a [group](speed.md#many-metrics-one-order)"
        ),
        "keras-rs, eight": "eight of these in keras-rs, which has no hit rate",
        "sparse HitRate@10": "`HitRate(k=10, sparse_labels=True)`",
    }

    def cells(name):
        operations, waits = found["torch"]["launches"][name]
        yield f"{operations:,}, {waits}"
        for backend in ("jax", "tensorflow"):
            yield f"{found[backend]['launches'][name][0]:,}"

    return table(
        ["PyTorch", "JAX", "TensorFlow"],
        [[title, *cells(name)] for name, title in rows.items()],
    )


def operations(found):
    ours, theirs = (
        found["torch"]["launches"][name][0] for name in ("NDCG@10", "keras-rs")
    )
    return paragraph(
        f"""On short lists, the number of operations determines the time of an update on
        PyTorch: NDCG@10 has {ours}, that of keras-rs {theirs}.
        [All counts](accelerators.md#what-a-training-step-costs), for JAX and TensorFlow
        too, are exact, and tests hold them to budgets."""
    )


BLOCKS = {
    block.__name__: block
    for block in (
        cost,
        caption,
        setting,
        update,
        inputs,
        peers,
        instead,
        groups,
        busy,
        memory,
        first_epoch,
        grouped_rows,
        catalogues,
        passes,
        counting_cost,
        counting_chart,
        many_targets,
        calls,
        fitting,
        tables,
        counts,
        operations,
    )
}

if __name__ == "__main__":
    main()
