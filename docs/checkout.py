"""A hook of MkDocs that omits notes for readers of a checkout from the site."""

import re

IN_A_CHECKOUT = re.compile(r"^> In a checkout, (?:.*\n)+?\n", re.MULTILINE)


def on_page_markdown(markdown: str, **kwargs: object) -> str:
    """Removes the paragraphs that start with "In a checkout".

    Args:
        markdown: the source of a page.
        **kwargs: further arguments of the hook.

    Returns:
        The source without these paragraphs.
    """
    return IN_A_CHECKOUT.sub("", markdown)
