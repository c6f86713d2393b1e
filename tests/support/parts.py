"""Which cases of the tests are quick: those of `make test`; `make test-all` has all."""

import collections

# In the order of their speed.
BACKENDS = ("numpy", "torch", "jax", "tensorflow")


def quick_of(items, backend):
    """The cases that show each value of each parameter, but none that is slow.

    All of these run on NumPy, and each on one of the other backends. Where tests have
    several parameters, other values meet on each backend.

    Args:
        items: the tests that pytest has collected.
        backend: the one on which they run.
    """
    place = BACKENDS.index(backend)
    tests = collections.defaultdict(list)
    for item in items:
        if "slow" not in item.keywords:
            tests[item.nodeid.partition("[")[0]].append(item)
    few = [_few_of(cases, shift=place) for cases in tests.values()]
    others = len(BACKENDS) - 1
    if place:
        few = [x if len(x) <= others else x[place - 1 :: others] for x in few]
    return set().union(*few)


def _few_of(cases, shift):
    if not hasattr(cases[0], "callspec"):
        return cases
    # Parameters that are given together have the same places.
    places = zip(*(case.callspec.indices.values() for case in cases), strict=True)
    axes = list(dict.fromkeys(places))
    case_at = dict(zip(zip(*axes, strict=True), cases, strict=True))
    # The diagonal first; not all of its pairs need be cases.
    sizes = [max(axis) + 1 for axis in axes]
    diagonal = [
        tuple((i + shift * axis) % size for axis, size in enumerate(sizes))
        for i in range(max(sizes))
    ]
    few, shown = [], set()
    for place in [*diagonal, *case_at]:
        values = set(enumerate(place))
        if place in case_at and not values <= shown:
            few.append(case_at[place])
            shown |= values
    return few
