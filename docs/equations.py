"""A hook of MkDocs that renders equations as MathML, which needs no script."""

import math_core
from mkdocs.config.defaults import MkDocsConfig
from pymdownx.superfences import SuperFencesException

MATHML = math_core.LatexToMathML(fancy_error=False)


def on_config(config: MkDocsConfig) -> None:
    """Renders blocks of `math` as equations. Code hosts support these blocks too."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [
        {"name": "math", "class": "equation", "format": render_mathml}
    ]


def render_mathml(
    latex: str, language: str, name: str, *args: object, **kwargs: object
) -> str:
    """Returns an equation in a box, which scrolls if it is too wide.

    Args:
        latex: the content of the block.
        language: the language of the block.
        name: the class of the box.
        *args: further arguments of a fence.
        **kwargs: further arguments of a fence.

    Returns:
        The box. The search skips it, because the code next to it has the same words.

    Raises:
        SuperFencesException: for invalid LaTeX, which would stay unchanged otherwise.
    """
    try:
        equation = MATHML.convert_with_local_state(latex, displaystyle=True)
    except math_core.LatexError as error:
        raise SuperFencesException(str(error)) from error
    return f'<div class="{name}" data-search-exclude>{equation}</div>'
