"""Nobody gets past without the token, and it does not stay in the address."""

import functools

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from assay.errors import InputError
from assay.web.token import TokenRequired, cookie_name, new_token


@pytest.fixture
def client():
    pages = [
        Route(path, lambda request: PlainTextResponse(f"hello {request.url.query}"))
        for path in ["/", "/a", "/up"]
    ]
    refused = functools.partial(PlainTextResponse, "token, please", 401)
    application = TokenRequired(Starlette(routes=pages), "right", refused, open_paths=["/up"])
    with TestClient(application) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/a", "/a?token=", "/a?token=wrong", "/nowhere"])
def test_without_the_token_nothing_is_answered(client, path):
    response = client.get(path)
    assert response.status_code == 401
    assert response.text == "token, please"
    assert response.headers["www-authenticate"] == "Bearer"


def test_an_open_path_needs_none(client):
    assert client.get("/up").text == "hello "


def test_a_browser_brings_it_once_and_keeps_it_in_a_cookie(client):
    first = client.get("/a?token=right&x=1", follow_redirects=False)
    assert first.status_code == 303
    assert first.headers["location"] == "/a?x=1"
    assert "httponly" in first.headers["set-cookie"].lower()
    assert "samesite=strict" in first.headers["set-cookie"].lower()
    assert client.get("/a?x=1").text == "hello x=1"


@pytest.mark.parametrize(("header", "status"), [("Bearer right", 200), ("Bearer wrong", 401), ("right", 401)])
def test_a_program_sends_it_in_a_header(client, header, status):
    assert client.get("/", headers={"authorization": header}).status_code == status


def test_a_token_in_the_address_of_a_post_does_not_count(client):
    assert client.post("/a?token=right").status_code == 401


def test_a_redirect_never_leaves_the_server(client):
    response = client.get("http://testserver//elsewhere.example/?token=right", follow_redirects=False)
    assert response.headers["location"] == "/elsewhere.example/"


def test_tokens_differ_and_so_do_their_cookies():
    one, other = new_token(), new_token()
    assert one != other
    assert len(one) >= 20
    assert cookie_name(one) != cookie_name(other)


@pytest.mark.parametrize("token", ["", " ", "two words", "tab\t", "n\u00e4chste", "x\n"])
def test_a_token_that_opens_the_door_or_that_no_header_can_hold_is_refused(token):
    with pytest.raises(InputError, match="expected a token of ASCII letters"):
        TokenRequired(Starlette(), token, PlainTextResponse)
