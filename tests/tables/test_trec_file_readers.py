"""Comparison of the two readers of TREC files: Arrow for plain lines, and DuckDB."""

import hypothesis
import pytest
from hypothesis import strategies as st

from keras_rank.reading.engine import connect
from keras_rank.reading.part import ColumnRef
from keras_rank.reading.text import NUMBER_ROLES, LinesPart

IDS = [
    "a",
    "b",
    "007",
    "1.0",
    "#a",
    '"a',
    "a'",
    "true",
    "null",
    "NaN",
    "\\",
    "é",
    "a b",
]
VALUES = [
    *("1", "0", "-2", "0.5", "-0.0", "1e-400", ".5", "5.", "1E3", "123456789012345678"),
    *("+1", "1_0", "0x1", "1e400", "nan", "-inf", "Infinity", "true", "", "x", "1,5"),
]
UNUSUAL = ["\t", "  ", "\r", " \n", "\n#", "\n\n", "\f"]
WIDTHS = {"qrels": (2, 3, 4), "run": (3, 5, 6)}


@st.composite
def contents(draw):
    """Draws the name of a side and the text of its file."""
    name = draw(st.sampled_from(sorted(WIDTHS)))
    width = draw(st.sampled_from(WIDTHS[name]))
    number = {2: None, 3: 2, 4: 3}.get(width, 4)
    # Half of the files only have usual values.
    ids = st.sampled_from(draw(st.sampled_from([IDS[:3], IDS])))
    numbers = st.sampled_from(draw(st.sampled_from([VALUES[:9], VALUES])))
    unusual = draw(
        st.sampled_from([[], ["\t", "  ", "\r", " \n", "\n#", "\n\n", "\f"]])
    )
    separator = draw(st.sampled_from([" ", "\t"]))
    text = ""
    for _ in range(draw(st.integers(1, 5))):
        fields = [draw(numbers if i == number else ids) for i in range(width)]
        if unusual and draw(st.booleans()):
            fields.insert(draw(st.integers(0, width)), draw(st.sampled_from(unusual)))
        text += separator.join(fields) + "\n"
    return name, text if draw(st.booleans()) else text[:-1]


@pytest.fixture(scope="module")
def connection():
    with connect() as connection:
        yield connection


def read_rows(connection, name, text):
    """Returns the rows of a file as text, or the message of the error."""
    part = LinesPart(connection, name, text.encode(), ())
    types = {"query": "VARCHAR", "item": "VARCHAR", NUMBER_ROLES[name]: "DOUBLE"}
    refs = {
        role: ColumnRef(role, f"column{i}", is_required=True, is_finite=role == "label")
        for i, role in enumerate(part.fields)
        if role in types
    }
    try:
        return repr(part.select(refs, {x: types[x] for x in refs}).fetchall())
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(content=contents())
@hypothesis.example(content=("qrels", "q\t0\td\t1\t"))
@hypothesis.example(content=("run", "q Q0 d 1 0.5\nq  d 1 0.5 t\n"))
@hypothesis.example(content=("run", "q Q0 d 1 0.5 t\n\tQ0 e 2 0.4 t\n"))
def test_both_readers_read_equal_rows(content, connection):
    found = read_rows(connection, *content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinesPart, "_separator", None)
        assert found == read_rows(connection, *content)


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_plain_lines_need_no_regular_expression(separator, connection, monkeypatch):
    monkeypatch.setattr(LinesPart, "_split", None)
    lines = [["q", "0", "a", "1"], ["q", "0", "b", "-2"]]
    text = "".join(separator.join(fields) + "\n" for fields in lines)
    assert read_rows(connection, "qrels", text) == "[('q', 'a', 1.0), ('q', 'b', -2.0)]"
