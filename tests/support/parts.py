"""Which cases of the tests are quick: those of `make test`; `make test-all` has all."""

import collections

# What `make test` leaves out, by backend.
SLOW = {
    "numpy": {"slow"},
    "torch": {"slow"},
    "jax": {"slow", "compiles_long"},
    "tensorflow": {"slow", "compiles_long"},
}


def quick_of(items, backend):
    """The cases of `make test`, none of which is slow.

    On NumPy they show each value of each parameter. On each other backend it is one of
    these cases of each test, another one on each.

    Args:
        items: the tests that pytest has collected.
        backend: the one on which they run.
    """
    place, tests = [*SLOW].index(backend), collections.defaultdict(list)
    for item in items:
        is_skipped = any(mark.args[0] for mark in item.iter_markers("skipif"))
        if SLOW[backend].isdisjoint(item.keywords) and not is_skipped:
            tests[item.nodeid.partition("[")[0]].append(item)
    quick = set()
    for cases in tests.values():
        few = _few_of(cases)
        quick.update([few[place % len(few)]] if place else few)
    return quick


def _few_of(cases):
    if not hasattr(cases[0], "callspec"):
        return cases
    # Parameters that are given together have the same places.
    places = zip(*(case.callspec.indices.values() for case in cases), strict=True)
    axes = list(dict.fromkeys(places))
    case_at = dict(zip(zip(*axes, strict=True), cases, strict=True))
    # The diagonal first; not all of its pairs need be cases.
    sizes = [max(axis) + 1 for axis in axes]
    diagonal = [tuple(i % size for size in sizes) for i in range(max(sizes))]
    few, shown = [], set()
    for place in [*diagonal, *case_at]:
        values = set(enumerate(place))
        if place in case_at and not values <= shown:
            few.append(case_at[place])
            shown |= values
    return few
