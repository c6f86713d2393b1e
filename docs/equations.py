"""Sets the equations of the site as MathML, which browsers show without a script."""

import math_core
from mkdocs.config.defaults import MkDocsConfig
from pymdownx.superfences import SuperFencesException

MATHML = math_core.LatexToMathML(fancy_error=False)


def on_config(config: MkDocsConfig) -> None:
    """Has a block of `math`, as code hosts know it too, shown as an equation."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "equation", "format": mathml}]


def mathml(
    latex: str, language: str, name: str, *args: object, **kwargs: object
) -> str:
    """An equation in a box of its own, which scrolls where it is too wide.

    Args:
        latex: what stands in the block.
        language: that of the block.
        name: the class of the box.
        *args: what else a fence may say.
        **kwargs: the same.

    Returns:
        The box, which the search leaves out: the code form beside it has the words.

    Raises:
        SuperFencesException: for what is no LaTeX, which would be left as it is else.
    """
    try:
        equation = MATHML.convert_with_local_state(latex, displaystyle=True)
    except math_core.LatexError as error:
        raise SuperFencesException(str(error)) from error
    return f'<div class="{name}" data-search-exclude>{equation}</div>'
