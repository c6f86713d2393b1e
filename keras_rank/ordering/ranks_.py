x


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RankedLists(Shared):
    """Lists and their order, for the functions that share it.

    Attributes:
        lists: the lists.
        ranking: their order, up to the cutoff.
        k: the cutoff, or `None`.
    """

    lists: Lists
    ranking: Ranking
    k: int | None
