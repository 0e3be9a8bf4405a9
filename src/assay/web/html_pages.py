"""Pages of HTML: templates, headers, forms, and errors as one sentence."""

import asyncio
from collections.abc import Callable
from importlib.resources import files
from urllib.parse import parse_qs

import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from assay.errors import AssayError, InputError, StorageError
from assay.web.body import TooLarge, body_of

Fields = dict[str, str]

LARGEST_ANSWER = 20_000
BODY_SECONDS = 20.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no referrer, browsers post with "Origin: null"
    "Cache-Control": "no-store",
}


def endpoint(answer: Callable[[Request, Fields], Response]) -> Callable[..., object]:
    """Run `answer` off the event loop; an error becomes a response of one sentence."""

    async def answered(request: Request) -> Response:
        try:
            fields = await _fields(request)
            response = await run_in_threadpool(answer, request, fields)
        except StorageError as error:
            response = error_response(507, str(error))
        except AssayError as error:
            response = error_response(422, str(error))
        except TimeoutError:
            response = error_response(408, f"expected the whole answer within {BODY_SECONDS:g} seconds")
        except ClientDisconnect:
            response = error_response(400, "the browser disconnected before it had sent its answer")
        response.headers.update(HEADERS)
        return response

    return answered


def error_response(status: int, sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}.", status_code=status, headers=HEADERS)


def token_missing() -> Response:
    return error_response(
        401, "this page needs the token in the address that was printed when the server started"
    )


async def _fields(request: Request) -> Fields:
    """The fields of a small form."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = b"".join([part async for part in body_of(request, LARGEST_ANSWER)])
    except TooLarge as error:
        raise InputError(f"expected an answer of at most {LARGEST_ANSWER} bytes, got more") from error
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def page(template: str, status: int = 200, **facts: object) -> Response:
    """A template of this package, filled in."""
    return HTMLResponse(_environment.get_template(template).render(**facts), status_code=status)


_environment = jinja2.Environment(
    loader=jinja2.FunctionLoader(lambda name: (files("assay.web") / name).read_text(encoding="utf-8")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    auto_reload=False,
)


def static(name: str) -> Callable[[Request], Response]:
    """A file of this package, as it is."""
    kinds = {"css": "text/css", "js": "text/javascript"}
    text = (files("assay.web") / name).read_text(encoding="utf-8")

    def answered(request: Request) -> Response:
        return Response(text, media_type=kinds[name.rpartition(".")[2]], headers=HEADERS)

    return answered
