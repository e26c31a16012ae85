"""Asking an LLM for an answer in JSON, through an OpenAI-compatible server or a client at hand.

No server is known here: every call names one, or the environment does.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from types import MappingProxyType
from typing import Any, cast

from bayes_ecc.checks import check_positive
from bayes_ecc.errors import BayesEccError, InputError

type Message = dict[str, str]
type Client = Callable[[list[Message], Mapping[str, Any]], str]

_LARGEST_ANSWER = 4_000_000  # bytes


class AnswerError(BayesEccError, RuntimeError):
    """An LLM could not be asked, or gave no answer that can be used; the message says what to do.

    Examples
    --------
    >>> from bayes_ecc import AnswerError, parse_cell_reading
    >>> try:
    ...     parse_cell_reading("I cannot tell.")
    ... except AnswerError as error:
    ...     print(error)
    The answer is not JSON (Expecting value, at character 0); it begins: 'I cannot tell.'.
    """


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to be sent elsewhere: the key is for the server that was named."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def chat_client(
    *,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    client: Any = None,
    name: str = "answer",
    timeout: float = 60.0,
    structured: bool = True,
) -> Client:
    """Make a function that asks an LLM, from messages and a JSON schema to the answer's text.

    Parameters
    ----------
    model : str, optional
        Name of the LLM on the server; needed unless `client` is a function.
    base_url, api_key : str, optional
        Of an OpenAI-compatible server; by default the environment variables OPENAI_BASE_URL and
        OPENAI_API_KEY. Without a key none is sent.
    client : optional
        Used in place of these: such a function itself, or an object with
        ``chat.completions.create``.
    name : str
        What the schema is called.
    timeout : float
        Seconds to wait for an answer.
    structured : bool
        Ask the server to hold to the schema.

    Returns
    -------
    callable
        It raises `AnswerError` if the server can't be reached, refuses, or answers otherwise.

    Raises
    ------
    InputError
        If nothing says whom to ask.

    Examples
    --------
    >>> from bayes_ecc.chat import chat_client
    >>> ask = chat_client(client=lambda messages, schema: messages[0]["content"].upper())
    >>> ask([{"role": "user", "content": "hello"}], {})
    'HELLO'
    """
    check_positive("timeout", timeout)
    completions = getattr(getattr(client, "chat", None), "completions", None)
    if client is not None and not callable(
        client if completions is None else getattr(completions, "create", None)
    ):
        raise InputError(
            "client must be a function of messages and a schema, or have chat.completions.create, "
            f"not {type(client).__name__}."
        )
    if completions is None and client is not None:
        return cast("Client", client)
    if not isinstance(model, str) or not model:
        raise InputError(f"model={model!r}: give the name of the LLM on the server.")
    if completions is not None:

        def create(messages: list[Message], schema: Mapping[str, Any]) -> str:
            body = _body(model, messages, schema if structured else None, name)
            return _content(completions.create(**body, timeout=timeout))

        return create
    base_url = os.environ.get("OPENAI_BASE_URL") if base_url is None else base_url
    api_key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
    if api_key is not None:
        api_key = api_key.strip()
        if not (api_key.isascii() and api_key.isprintable()):
            raise InputError("api_key holds characters that no key has; give it as it was issued.")
    if not base_url or urllib.parse.urlsplit(base_url).scheme not in ("http", "https"):
        raise InputError(
            f"base_url={base_url!r}: give the address of an OpenAI-compatible server, beginning "
            "with http:// or https:// and ending in /v1 as a rule, or set OPENAI_BASE_URL."
        )
    url = base_url.rstrip("/") + "/chat/completions"

    def post(messages: list[Message], schema: Mapping[str, Any]) -> str:
        return _post(
            url, api_key, _body(model, messages, schema if structured else None, name), timeout
        )

    return post


def _body(
    model: str, messages: list[Message], schema: Mapping[str, Any] | None, name: str
) -> dict[str, Any]:
    """Lay out a request, asking for the schema where there is one."""
    body: dict[str, Any] = {"model": model, "messages": messages}
    if schema is not None:
        named = {"name": name, "strict": True, "schema": dict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


def _post(url: str, api_key: str | None, body: dict[str, Any], timeout: float) -> str:
    """Send a request and give the text of the answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout) as response:
            raw = response.read(_LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(400).decode("utf-8", errors="replace").strip()
        remedy = _REMEDIES.get(error.code, "see what it says, and its documentation")
        raise AnswerError(
            f"{url} answered {error.code} ({error.reason}): {said or 'nothing more'}. "
            f"What to do: {remedy}."
        ) from None
    except (OSError, HTTPException, ValueError) as error:  # URLError and timeouts are OSErrors
        raise AnswerError(
            f"{url} could not be asked ({error}); check base_url, the network and "
            f"that the server runs, or raise timeout (now {timeout:g} s)."
        ) from None
    if len(raw) > _LARGEST_ANSWER:
        raise AnswerError(f"{url} answered with more than 4 MB; is it the right server?")
    try:
        return _content(json.loads(raw))
    except ValueError:
        raise AnswerError(
            f"{url} answered something else than JSON ({raw[:80]!r}); base_url should end in /v1 "
            "as a rule."
        ) from None


_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        301: "give the address it moved to as base_url; redirects are not followed",
        302: "give the address it points to as base_url; redirects are not followed",
        307: "give the address it points to as base_url; redirects are not followed",
        308: "give the address it moved to as base_url; redirects are not followed",
        400: "check model; if the server does not know response_format, pass structured=False",
        401: "pass api_key, or set OPENAI_API_KEY",
        403: "use a key that may use this model",
        404: "check model and base_url, which ends in /v1 as a rule",
        413: "lower max_characters or show fewer queries",
        422: "check model; if the server does not know response_format, pass structured=False",
        429: "wait, or ask less often",
        500: "try again later",
        502: "try again later",
        503: "try again later",
    }
)


def _content(response: Any) -> str:
    """Give the text of the first choice of a chat completion, an object or plain JSON."""
    try:
        if isinstance(response, Mapping):
            message = response["choices"][0]["message"]
            content, refusal = message.get("content"), message.get("refusal")
        else:
            message = response.choices[0].message
            content, refusal = message.content, getattr(message, "refusal", None)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise AnswerError(
            f"The answer is no chat completion ({str(response)[:80]!r}); check base_url or client."
        ) from None
    if not isinstance(content, str) or not content.strip():
        reason = f" ({refusal})" if refusal else ""
        raise AnswerError(f"The LLM gave no text{reason}; use another one or other queries.")
    return content
