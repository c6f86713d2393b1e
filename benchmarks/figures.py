"""Program that writes the measured figures and charts into the pages.

    python benchmarks/figures.py

The text of a page between `<!-- figures: NAME -->` and `<!-- end of figures -->` is
replaced by the result of the function NAME, which formats the measurements that `make
bench` has written to `benchmarks/results`.
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
CHARTS = {
    "docs/speed.png": charts.draw_times_per_list,
    "docs/catalogues.png": charts.draw_times_by_size,
}
END = "<!-- end of figures -->"
BLOCK = re.compile(
    rf"^<!-- figures: (?P<name>\w+) -->\n.*?^{END}$", re.DOTALL | re.MULTILINE
)


def read_results():
    """Reads the measurements by file name. The backends precede the other files."""
    names = [*TITLES, "calls", "tables", "catalogue_sizes"]
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in names}


def render(page, results):
    """Returns the text of a page with its figures replaced."""

    def fill_block(match):
        start = f"<!-- figures: {match['name']} -->"
        return f"{start}\n\n{BLOCKS[match['name']](results)}\n\n{END}"

    return BLOCK.sub(fill_block, page)


def digest(chart_figures):
    """Returns a hash of the figures of a chart: an image with another hash is stale."""
    return hashlib.sha256(
        json.dumps(chart_figures, sort_keys=True).encode()
    ).hexdigest()


def get_chart_figures(results):
    """Returns the figures of each chart."""
    backends = [{**results[name], "title": title} for name, title in TITLES.items()]
    return {
        "docs/speed.png": [
            {key: run[key] for key in ("title", "cores", "per_list")}
            | {"date": run["dates"]["per_list"]}
            for run in backends
        ],
        "docs/catalogues.png": results["catalogue_sizes"],
    }


def main():
    results = read_results()
    for name in PAGES:
        page = ROOT / name
        page.write_text(render(page.read_text(), results))
    for name, figures in get_chart_figures(results).items():
        metadata = {"Description": digest(figures)}
        CHARTS[name](figures).savefig(ROOT / name, metadata=metadata)


def format_short(number):
    """Formats a number with two significant digits, or as a whole number."""
    if abs(number) >= 9.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 0.995 else f"{float(f'{number:.2g}')}"


def format_two_digits(number):
    """Formats a number with two significant digits, even if it is small."""
    return (
        format_short(number)
        if number >= 1
        else f"{number:.{1 - get_exponent(number)}f}"
    )


def get_exponent(number):
    """Returns the exponent of the first significant digit of a number."""
    return math.floor(math.log10(float(f"{number:.2g}")))


def format_range(numbers):
    least, most = format_short(min(numbers)), format_short(max(numbers))
    return least if least == most else f"{least} to {most}"


def format_million(number):
    return f"{format_short(number / 1e6)} million"


def join_texts(texts):
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def wrap_paragraph(text):
    return textwrap.fill(" ".join(text.split()), 88, break_on_hyphens=False)


def wrap_item(text):
    text = " ".join(text.split())
    return textwrap.fill(
        f"- {text}", 88, subsequent_indent="  ", break_on_hyphens=False
    )


def table(columns, rows, corner=""):
    lines = [[corner, *columns], ["---"] * (len(columns) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def make_cells(results, cell, names=tuple(TITLES)):
    """Returns the cells of a row, one for each backend."""
    return [cell(results[name]) for name in names]


def format_shape(name):
    """Formats a shape such as `1024 x 100, 10` for a page."""
    sizes, *k = name.split(", ")
    lists, items = (int(size) for size in sizes.split(" x "))
    return ", ".join([f"{lists} × {items if items < 10_000 else f'{items:,}'}", *k])


TRAINING = ("jax", "tensorflow", "torch")
# The name of the case with one target in `passes`.
ONE_TARGET = "256 x 100000, 10, 1"


def cost(results):
    shapes = {
        "256 x 1000, 10": "NDCG@10 of 256 lists of 1,000 items",
        "1024 x 100, 10": "NDCG@10 of 1,024 lists of 100 items",
        "256 x 1000, all": "NDCG of 256 lists of 1,000 items, without a cutoff",
    }
    rows = [
        [
            title,
            *make_cells(
                results,
                lambda run, name=name: (
                    f"{format_short(run['update'][name]['ms'])} ms, "
                    f"{format_short(run['update'][name]['keras-rs'])}x"
                ),
            ),
        ]
        for name, title in shapes.items()
    ]
    rows.append(
        [
            "HitRate@10 of ids among 100,000 items, in times of `ops.max(scores)`",
            *make_cells(results, lambda run: format_short(run["passes"][ONE_TARGET])),
        ]
    )
    added = [f"{max(results[b]['fitting'], 0):.0f}%" for b in TRAINING]
    compiling = [f"{results[b]['first_epoch']['NDCG@10']:.2f} s" for b in TRAINING]
    rows.append(["NDCG@10 in `fit`, longer epochs by", *added, "-"])
    rows.append(["the first epoch, which compiles, by another", *compiling, "-"])
    return table(TITLES.values(), rows)


def caption(results):
    dates = sorted({results[b]["dates"]["per_list"] for b in TITLES})
    return wrap_paragraph(
        f"""Time per list of one update of NDCG@10, on {results["numpy"]["cores"]} CPU
        cores, measured on {join_texts(dates)}. `make bench` repeats it on your
        machine."""
    )


def setting(results):
    versions = [f"Keras {results['jax']['versions']['keras']}"]
    versions += [f"{TITLES[b]} {results[b]['versions'][b]}" for b in TITLES]
    dates = sorted(
        {date for name in TITLES for date in results[name]["dates"].values()}
    )
    days = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    return wrap_paragraph(
        f"""All times were measured on one machine with {results["numpy"]["cores"]}
        cores, {days}: {", ".join(versions)}."""
    )


def update(results):
    rows = [
        [
            format_shape(name),
            *make_cells(
                results,
                lambda run, name=name: (
                    f"{format_short(run['update'][name]['ms'])}, "
                    f"{format_short(run['update'][name]['keras-rs'])}x"
                ),
            ),
        ]
        for name in results["numpy"]["update"]
    ]
    longest = "64 x 100000, 10"
    sums = [
        f"{format_short(results[b]['update'][longest]['ms of the sum'])} ms on {title}"
        for b, title in TITLES.items()
    ]
    return "\n".join(
        [
            table(TITLES.values(), rows, "lists × items, k"),
            "",
            wrap_paragraph(
                f"""Summing the labels and the scores of {format_shape(longest)[:-4]}
                takes {join_texts(sums)}."""
            ),
        ]
    )


def inputs(results):
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
                *make_cells(
                    results,
                    lambda run, kind=kind: format_range(
                        [times[kind] for times in run["update"].values()]
                    ),
                ),
            ]
            for kind, title in kinds.items()
        ],
    )


def peers(results):
    rows = []
    for backend in ("jax", "torch", "numpy"):
        for name, times in results[backend]["per_list"].items():
            others = [
                f"{peer}: {format_short(time)}"
                for peer, time in times.items()
                if peer.split()[0] not in ("keras_rank", "keras-rs")
            ]
            rows.append(
                [
                    f"{format_shape(name)}, {TITLES[backend]}",
                    format_short(times["keras_rank"]),
                    ", ".join(others),
                ]
            )
    return table(["ours", "others"], rows, "lists × items")


def instead(results):
    def cells(name, ratio):
        return make_cells(
            results, lambda run: format_short(run["instead"][name][ratio])
        )

    rows = [
        [format_shape(name), *cells(name, "naive")]
        for name in results["numpy"]["instead"]
    ]
    small = "32 x 20"
    rows.append([f"{format_shape(small)}, of Keras's metric", *cells(small, "Keras")])
    return table(TITLES.values(), rows, "lists × items")


def groups(results):
    rows = [
        [
            format_shape(name),
            *make_cells(
                results, lambda run, name=name: format_short(run["groups"][name])
            ),
        ]
        for name in results["numpy"]["groups"]
    ]
    return table(TITLES.values(), rows, "lists × items")


def busy(results):
    def cells(name, library):
        for backend in TITLES:
            times = results[backend]["busy"][name]
            quiet, loaded = (times[state][library] for state in ("quiet", "busy"))
            yield f"{format_short(loaded)}, {format_short(loaded / quiet)}x"

    rows = [
        [f"{format_shape(name)}{title}", *cells(name, library)]
        for name in results["numpy"]["busy"]
        for library, title in enumerate(("", ", keras-rs"))
    ]
    return table(TITLES.values(), rows, "lists × items")


def memory(results):
    ours, theirs = (
        join_texts(
            [f"{title} {results[b]['memory'][name]:.2f}" for b, title in TITLES.items()]
        )
        for name in ("keras_rank", "keras_rs")
    )
    return wrap_paragraph(
        f"""Memory of one update of 64 × 100,000, k=10, beyond its inputs, as a multiple
        of the size of one input: {ours}. For keras-rs: {theirs}."""
    )


def first_epoch(results):
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
                *make_cells(
                    results,
                    lambda run, n=name: f"{run['first_epoch'][n]:.2f}",
                    TRAINING,
                ),
            ]
            for name, title in rows.items()
        ],
    )


def grouped_rows(results):
    ratios = [
        f"{results[backend]['grouped_rows']:.2f} on {TITLES[backend]}"
        for backend in TRAINING
    ]
    return (
        "Of 50,000 rows of 32 features in lists of about 50, predicted in batches of\n"
        "128, NDCG@10 and MRR by `GroupedEvaluation` take, as multiples of `predict`:\n"
        f"{', '.join(ratios)}."
    )


def catalogues(results):
    items = results["numpy"]["from_file"]["items"]
    rows = {
        "one target, relative to the products": lambda run: run["catalogues"]["one"],
        "ten targets, relative to one": lambda run: (
            run["catalogues"]["ten"] / run["catalogues"]["one"]
        ),
        "top 100 of a stream by hand, relative to the products": lambda run: run[
            "catalogues"
        ]["top 100"],
        "`catalogue.top_k` of 100, relative to the products": lambda run: run[
            "catalogues"
        ]["top_k(100)"],
        f"1,024 queries among {format_million(items)} items in a file, s": lambda run: (
            run["from_file"]["seconds"]
        ),
        "the memory for that, MB": lambda run: run["from_file"]["MB"],
    }
    return table(
        TITLES.values(),
        [
            [
                title,
                *make_cells(results, lambda run, cell=cell: format_short(cell(run))),
            ]
            for title, cell in rows.items()
        ],
    )


def passes(results):
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
                *make_cells(
                    results,
                    lambda run, name=name: format_short(run["passes"][name]),
                ),
            ]
            for name, title in rows.items()
        ],
    )


def counting_cost(results):
    ratios = make_cells(results, lambda run: run["catalogues"]["one"])
    return wrap_paragraph(
        f"""The product of all queries and all items, and a comparison: together
        {format_range(ratios)} times the time of the product
        ([measured](speed.md#whole-catalogues-and-training)). The cutoffs don't matter,
        and each further metric is nearly free."""
    )


def counting_chart(results):
    times = [
        times_by_size[max(set(times_by_size), key=int)]
        for times_by_size in results["catalogue_sizes"]["seconds"].values()
    ]
    counting, stream, matrix = (format_short(time) for time in times)
    return (
        f"![At the largest size, counting takes {counting} s and a stream of the top "
        f"100 {stream} s; the matrix takes {matrix} s on fewer items](catalogues.png)"
    )


def many_targets(results):
    def cell(backend, name):
        case = backend["many_targets"][name]
        return f"{format_short(case['seconds'])}, {format_short(case['ratio'])}x"

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
            [title, *make_cells(results, lambda run, name=name: cell(run, name))]
            for name, title in rows.items()
        ],
    )


def calls(results):
    columns = {
        "first": "first",
        "new shape": "new shape",
        "steady": "steady state",
        "20 ragged": "20 ragged batches",
    }

    def cell(times, name):
        return ", ".join(format_two_digits(run[name]) for run in times.values())

    return table(
        columns.values(),
        [
            [title, *(cell(results["calls"][backend], name) for name in columns)]
            for backend, title in TITLES.items()
        ],
    )


def fitting(results):
    added = [f"{max(results[b]['fitting'], 0):.0f}% on {TITLES[b]}" for b in TRAINING]
    return wrap_paragraph(
        f"""With NDCG@10, an epoch of `fit` on lists of 100 items (two layers of 128
        units, 50 features) takes longer by {join_texts(added)}."""
    )


def tables(results):
    small, large = (results["tables"][n] for n in sorted(results["tables"], key=int))
    seconds = {
        n: format_short(small[n]["seconds"]) for n in ("ours", "pytrec_eval", "ranx")
    }
    return wrap_paragraph(
        f"""{format_million(small["rows"])} shuffled rows of 50,000 queries, from a
        Parquet file to the summary of NDCG@10, MAP and MRR, including all checks of
        `health`: {seconds["ours"]} s. pytrec_eval takes {seconds["pytrec_eval"]} s,
        mostly to build its dicts, and ranx {seconds["ranx"]} s.
        {format_million(large["rows"])} rows with `memory_limit="2GB"`:
        {format_short(large["ours"]["seconds"])} s, at a peak of
        {large["ours"]["GB"]:.2f} GB."""
    )


def counts(results):
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
        operations, waits = results["torch"]["launches"][name]
        yield f"{operations:,}, {waits}"
        for backend in ("jax", "tensorflow"):
            yield f"{results[backend]['launches'][name][0]:,}"

    return table(
        ["PyTorch", "JAX", "TensorFlow"],
        [[title, *cells(name)] for name, title in rows.items()],
    )


def operations(results):
    ours, theirs = (
        results["torch"]["launches"][name][0] for name in ("NDCG@10", "keras-rs")
    )
    return wrap_paragraph(
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
