"""The token that a server asks every client for."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.errors import InputError


def new_token() -> str:
    """128 random bits that fit into an address."""
    return secrets.token_urlsafe(16)


def check_token(token: str) -> None:
    """Refuse a token that lets everybody in, or that no client could send in a header."""
    if not token or not all("!" <= letter <= "~" for letter in token):
        got = "an empty one" if not token else "one with other characters"
        raise InputError(
            f"expected a token of ASCII letters, digits and signs without spaces, got {got}; choose "
            "another for --token or ASSAY_TOKEN, or leave both out"
        )


def cookie_name(token: str) -> str:
    """Each server has its own: browsers share cookies between all ports of a machine."""
    return f"assay-{hashlib.sha256(token.encode()).hexdigest()[:12]}"


class TokenRequired:
    """Lets a request through if it carries the token; `refused` answers any other, with status 401.

    A browser sends it once in the address (`?token=`), is redirected without it and keeps it in a cookie; a
    program sends `Authorization: Bearer TOKEN`. Paths in `open_paths` need none.
    """

    def __init__(
        self, app: ASGIApp, token: str, refused: Callable[[], Response], open_paths: Collection[str] = ()
    ) -> None:
        check_token(token)
        self.app, self.token, self.refused = app, token, refused
        self.open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.open_paths:
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        if request.method == "GET" and self._is_token(request.query_params.get("token", "")):
            await self._redirect_with_cookie(request)(scope, receive, send)
        elif self._is_token(_bearer(request)) or self._is_token(
            request.cookies.get(cookie_name(self.token), "")
        ):
            await self.app(scope, receive, send)
        else:
            response = self.refused()
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _redirect_with_cookie(self, request: Request) -> Response:
        """The same address without the token, so that it stays out of histories and bookmarks."""
        rest = urlencode([(key, value) for key, value in parse_qsl(request.url.query) if key != "token"])
        path = "/" + request.url.path.lstrip("/")  # two slashes would lead to another machine
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
        response.set_cookie(cookie_name(self.token), self.token, httponly=True, samesite="strict")
        return response


def _bearer(request: Request) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""
