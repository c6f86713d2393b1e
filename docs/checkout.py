"""Leaves out of the site what is for those who read the pages in a checkout."""

import re

IN_A_CHECKOUT = re.compile(r"^> In a checkout, (?:.*\n)+?\n", re.MULTILINE)


def on_page_markdown(markdown: str, **kwargs: object) -> str:
    """Drops such paragraphs.

    Args:
        markdown: the source of a page.
        **kwargs: further arguments of the hook.

    Returns:
        The source without them.
    """
    return IN_A_CHECKOUT.sub("", markdown)
