"""Keeps pages of other sites from reaching a server of this machine through the user's browser."""

from collections.abc import Callable, Collection
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

NO_ADDRESS = urlsplit("")
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class OwnPagesOnly:
    """Lets a request through if it names this server, and comes from no page or from one of its own.

    A page of another site can point its own name at this machine (DNS rebinding); its requests then carry
    that name in `Host` (status 421). Or it posts here directly; then the browser says so in `Origin` (403).
    This server's names are those of this machine, the address a connection came in by, and `hosts`. Every
    browser sends `Host`; a request without it comes from a program.
    """

    def __init__(
        self, app: ASGIApp, refused: Callable[[int, str], Response], hosts: Collection[str] = ()
    ) -> None:
        self.app, self.refused = app, refused
        self.hosts = frozenset(host.strip("[]").lower() for host in (*THIS_MACHINE, *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._refusal(scope) if scope["type"] == "http" else None
        await (answer or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        request = Request(scope)
        named, origin = request.headers.get("host", ""), request.headers.get("origin")
        reached, _ = scope.get("server") or ("", None)
        if named and _parts(f"//{named}").hostname not in self.hosts | {reached.lower()}:
            return self.refused(
                421,
                f"expected a request to one of this server's names, got Host {named[:200]!r}; use the "
                "address it printed (assay serve takes others with --allow-host)",
            )
        if origin is not None and _parts(origin).netloc.lower() != named.lower():
            return self.refused(
                403,
                f"expected a request from a program or from this server's own pages, got {origin[:200]!r}",
            )
        return None


def _parts(address: str) -> SplitResult:
    """The parts of an address; none of one that is not an address."""
    try:
        parts = urlsplit(address)
        return parts if parts.hostname else NO_ADDRESS
    except ValueError:  # brackets that do not close, or that hold no address
        return NO_ADDRESS
