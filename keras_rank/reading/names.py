"""The names that columns have in known tools."""

from collections.abc import Sequence

from keras_rank.reading.layouts import plain_name

# The names of columns in known tools, BEIR, ir_measures, ranx, PyTerrier, Hugging Face
# and Quepid among them, in lower case and with underscores. The first is the default.
KNOWN = {
    "query": ("query_id", "q_id", "qid", "user_id", "query"),
    "item": ("item_id", "corpus_id", "doc_id", "docno", "docid", "item"),
    "label": ("label", "relevance", "rel", "rating"),
    "score": ("score",),
    "subtopic": ("subtopic_id", "subtopic", "iteration"),
}
# Beside those of ids there may be the text of a query or an item, PyTerrier's number of
# a document, and TREC's iteration.
_BESIDE = {
    "query": {"query_id", "q_id", "qid"},
    "item": {*KNOWN["item"]},
    "docid": {"docno"},
    "iteration": {"subtopic_id", "subtopic"},
}


def known_name(role: str, given: str, names: Sequence[str]) -> str:
    """The name of a column: as it was given, or for the default that of a known tool.

    Args:
        role: what the column holds.
        given: the name that was given.
        names: the names of all columns.
    """
    if given in names or given != KNOWN[role][0]:
        return given
    plain = {name: plain_name(name) for name in names}
    found = [name for name in names if plain[name] in KNOWN[role]]
    others = {name: _BESIDE.get(plain[name], set()) - {plain[name]} for name in found}
    found = [x for x in found if others[x].isdisjoint(plain[y] for y in found)]
    if len(found) > 1:
        raise ValueError(
            f"`{role}` should name one column. Received: {role}={given!r}, and a table "
            f"with {' and '.join(map(repr, found))}: say which, such as "
            f"{role}={found[0]!r} (--{role} {found[0]}), or leave out the others"
        )
    return found[0] if found else given
