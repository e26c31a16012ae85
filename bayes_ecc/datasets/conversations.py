"""What users asked, read off prompts and conversations in the forms they are published in."""

from __future__ import annotations

import json
from typing import Any

from bayes_ecc.datasets.sheets import whole_text


def user_turns(value: Any) -> list[str]:
    """Give what the user said, turn by turn.

    Parameters
    ----------
    value : object
        A prompt; a list of prompts, or JSON text of one; or a conversation, a list of records with
        `role` and `content`, which is text or a list of records with `text`.

    Returns
    -------
    list of str
        Empty where nothing was said.

    Examples
    --------
    >>> from bayes_ecc.datasets.conversations import user_turns
    >>> user_turns('["Hello.", "And now?"]')
    ['Hello.', 'And now?']
    >>> user_turns([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi"}])
    ['Hello.']
    """
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError, MemoryError):
            return [whole_text(value)]
    if isinstance(value, str):
        return [whole_text(value)]
    if not isinstance(value, list):
        return []
    turns = []
    for turn in value:
        if isinstance(turn, str):
            turns.append(whole_text(turn))
        elif isinstance(turn, dict) and turn.get("role") in ("user", "human"):
            turns.append(_content(turn.get("content")))
    return [turn for turn in turns if turn]


def _content(content: Any) -> str:
    if isinstance(content, str):
        return whole_text(content)
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return whole_text("\n".join(part for part in parts if isinstance(part, str)))


def joined(turns: list[str]) -> str | None:
    """Make one text of the turns; nothing of none."""
    return "\n\n".join(turns) or None
