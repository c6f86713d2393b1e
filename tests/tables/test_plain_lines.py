"""Plain lines of TREC files, which Arrow reads, compared with what DuckDB reads."""

import hypothesis
import pytest
from hypothesis import strategies as st

from keras_rank.reading.engine import connect
from keras_rank.reading.part import ColumnRef
from keras_rank.reading.text import LinesPart

IDS = ["a", "b", "007", "1.0", "#a", '"a', "a'", "true", "null", "NaN", "\\", "é", "a b"]
NUMBERS = [
    *("1", "0", "-2", "0.5", "-0.0", "1e-400", ".5", "5.", "1E3", "123456789012345678"),
    *("+1", "1_0", "0x1", "1e400", "nan", "-inf", "Infinity", "true", "", "x", "1,5"),
]
WIDTHS = {"qrels": (2, 3, 4), "run": (3, 5, 6)}


@st.composite
def contents(draw):
    """The name of a side, and the text of its file."""
    name = draw(st.sampled_from(sorted(WIDTHS)))
    width = draw(st.sampled_from(WIDTHS[name]))
    number = {2: None, 3: 2, 4: 3}.get(width, 4)
    # Most files have usual values only.
    ids = st.sampled_from(draw(st.sampled_from([IDS[:3], IDS])))
    numbers = st.sampled_from(draw(st.sampled_from([NUMBERS[:9], NUMBERS])))
    unusual = draw(st.sampled_from([[], ["\t", "  ", "\r", " \n", "\n#", "\n\n", "\f"]]))
    separator = draw(st.sampled_from([" ", "\t"]))
    text = ""
    for _ in range(draw(st.integers(1, 5))):
        fields = [draw(numbers if i == number else ids) for i in range(width)]
        if unusual and draw(st.booleans()):
            fields.insert(draw(st.integers(0, width)), draw(st.sampled_from(unusual)))
        text += separator.join(fields) + "\n"
    return name, text if draw(st.booleans()) else text[:-1]


def rows_of(name, text):
    """The rows, or the error."""
    roles = ["query", "item", {"qrels": "label", "run": "score"}[name]]
    with connect() as connection:
        part = LinesPart(connection, name, text.encode(), ())
        known = [x for x in roles if x in part.fields]
        sought = {
            x: ColumnRef(
                x,
                f"column{part.fields.index(x)}",
                is_required=True,
                is_finite=x == "label",
            )
            for x in known
        }
        types = {x: "VARCHAR" if x in roles[:2] else "DOUBLE" for x in known}
        try:
            return repr(part.select(sought, types).fetchall())
        except ValueError as error:
            return str(error)


@hypothesis.settings(deadline=None, max_examples=300)
@hypothesis.given(content=contents())
@hypothesis.example(("run", "q Q0 d 1 0.5\nq  d 1 0.5 t\n"))
@hypothesis.example(("run", "q Q0 d 1 0.5 t\n\tQ0 e 2 0.4 t\n"))
def test_plain_lines_are_read_alike(content):
    found = rows_of(*content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinesPart, "_separator", None)
        assert found == rows_of(*content)


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_plain_lines_need_no_regular_expression(separator, monkeypatch):
    monkeypatch.setattr(LinesPart, "_split", None)
    lines = [["q", "0", "a", "1"], ["q", "0", "b", "-2"]]
    text = "".join(separator.join(fields) + "\n" for fields in lines)
    assert rows_of("qrels", text) == "[('q', 'a', 1.0), ('q', 'b', -2.0)]"
