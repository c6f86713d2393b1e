"""The selection of the test cases of `make test`. `make test-all` runs all cases."""

import collections

# The marks of tests that `make test` leaves out, by backend.
SLOW = {
    "numpy": {"slow"},
    "torch": {"slow"},
    "jax": {"slow", "compiles_long"},
    "tensorflow": {"slow", "compiles_long"},
}


def select_quick(items, backend):
    """Returns the cases of `make test`, none of which is slow.

    On NumPy, the cases of a test cover each value of each parameter. Every other
    backend runs one of these cases of each test, and each backend a different one.

    Args:
        items: the tests that pytest has collected.
        backend: the backend on which the tests run.
    """
    number, tests = [*SLOW].index(backend), collections.defaultdict(list)
    for item in items:
        is_skipped = any(mark.args[0] for mark in item.iter_markers("skipif"))
        if SLOW[backend].isdisjoint(item.keywords) and not is_skipped:
            tests[item.nodeid.partition("[")[0]].append(item)
    quick = set()
    for cases in tests.values():
        covering = _select_covering(cases)
        quick.update([covering[number % len(covering)]] if number else covering)
    return quick


def _select_covering(cases):
    """Returns few cases of a test that cover each value of each parameter."""
    if not hasattr(cases[0], "callspec"):
        return cases
    # Parameters of one `parametrize` have equal indices, and count as one axis.
    columns = zip(*(case.callspec.indices.values() for case in cases), strict=True)
    axes = list(dict.fromkeys(columns))
    case_at = dict(zip(zip(*axes, strict=True), cases, strict=True))
    # The diagonal comes first. Not every index on the diagonal has a case.
    sizes = [max(axis) + 1 for axis in axes]
    diagonal = [tuple(i % size for size in sizes) for i in range(max(sizes))]
    covering, covered = [], set()
    for index in [*diagonal, *case_at]:
        values = set(enumerate(index))
        if index in case_at and not values <= covered:
            covering.append(case_at[index])
            covered |= values
    return covering
