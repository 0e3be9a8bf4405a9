"""The service's doors: who may come in, how much may be asked, and that nobody can keep others out."""

import asyncio
import contextlib
import json
import socket
import threading

import pytest
import torch
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from torch import nn
from typer.testing import CliRunner

from assay import Guard, Network, Watch
from assay.errors import InputError
from assay.monitors import MaxLogit
from assay.web.listening import PromptConnection, address_of, is_this_machine, listening_socket
from assay.web.service import Limits, Service

INFER = "/v2/models/guard/infer"
JSON = {"Content-Type": "application/json"}
ROWS = 5
GOOD = {"name": "x", "shape": [ROWS, 9], "datatype": "FP32", "data": [0] * 9 * ROWS}
LOGITS = {"name": "logits"}
PATIENCE = 300.0
"""Seconds after which what a test waits for has hung, however busy the machine is."""


@pytest.fixture(scope="module")
def guard():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3)))
    trace = network.observe(torch.rand(50, 9))
    return Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.2)


@contextlib.contextmanager
def client_of(guard, **options):
    with TestClient(Service(Watch(guard), **options).app) as client:
        yield client


@pytest.fixture
def client(guard):
    with client_of(guard) as client:
        yield client


def refusals(client, status, **headers):
    families = text_string_to_metric_families(client.get("/metrics", headers=headers).text)
    samples = [sample for family in families for sample in family.samples]
    named = [s.value for s in samples if s.name == "assay_requests_total" and s.labels["status"] == status]
    return sum(named)


# How much may be asked


def test_an_output_asked_for_three_thousand_times_comes_once(client):
    asked = {"inputs": [GOOD], "outputs": [LOGITS] * 3000 + [{"name": "score"}, LOGITS]}
    response = client.post(INFER, json=asked)
    assert response.status_code == 200
    assert [output["name"] for output in response.json()["outputs"]] == ["logits", "score"]
    assert len(response.content) < 2000


def test_an_answer_is_bounded_as_a_request_is(guard):
    with client_of(guard, limits=Limits(body=ROWS * 3 * 26)) as client:
        assert client.post(INFER, json={"inputs": [GOOD], "outputs": [LOGITS]}).status_code == 200
        outputs = [LOGITS, {"name": "score"}]
        response = client.post(INFER, json={"inputs": [GOOD], "outputs": outputs})
        assert response.status_code == 400
        assert "expected an answer of at most 390 bytes, got one of up to 520" in response.json()["error"]


# Whose pages may ask


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_what_a_foreign_page_could_post_unasked_is_refused(client, kind):
    response = client.post(INFER, content=json.dumps({"inputs": [GOOD]}), headers={"Content-Type": kind})
    assert response.status_code == 415
    assert "expected Content-Type: application/json" in response.json()["error"]


def test_a_body_without_any_type_is_refused_and_a_charset_is_fine(client):
    def pieces():  # httpx states no type for it
        yield json.dumps({"inputs": [GOOD]}).encode()

    assert client.post(INFER, content=pieces()).status_code == 415
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post(INFER, content=pieces(), headers=kind).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://testserver", 200),
        ("https://testserver", 200),  # a proxy in front does the TLS
        ("http://evil.example", 403),
        ("http://testserver.evil.example", 403),
        ("http://testserver:8080", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
        ("http://[x]", 403),
        ("http://testserver:x", 403),
    ],
)
def test_pages_of_other_sites_are_refused(client, origin, status):
    response = client.post(INFER, json={"inputs": [GOOD]}, headers={"Origin": origin})
    assert response.status_code == status
    if status == 403:
        assert "own pages" in response.json()["error"]
        assert refusals(client, "403") == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("testserver", 200),  # the address that the connection came in by
        ("localhost:8080", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8080", 200),
        ("guard.example", 200),
        ("guard.example:443", 200),
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("[::1", 421),
        ("[x]", 421),
    ],
)
def test_a_name_that_is_not_this_servers_is_refused(guard, host, status):
    with client_of(guard, hosts=["Guard.example"]) as client:
        for path in ("/metrics", "/healthz"):
            response = client.get(path, headers={"Host": host})
            assert response.status_code == status
        if status == 421:
            assert "one of this server's names" in response.json()["error"]
            assert refusals(client, "421") == 2


# The token


def test_a_401_says_what_is_true_as_json_and_is_counted(guard):
    with client_of(guard, token="secret") as client:
        for headers in ({}, {"Authorization": "Bearer other"}):
            response = client.post(INFER, json={"inputs": [GOOD]}, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer" in response.json()["error"]
            assert "printed" not in response.json()["error"]
        assert refusals(client, "401", Authorization="Bearer secret") == 2


def test_an_empty_token_opens_no_door(guard, monkeypatch):
    from assay.cli import app

    with pytest.raises(InputError, match="expected a token"):
        Service(Watch(guard), token="")

    def error(*options):
        return str(CliRunner().invoke(app, ["serve", "no.safetensors", "my:net", *options]).exception)

    assert "an empty one" in error("--token", "")
    assert "found none; check the path" in error("--token", "secret")
    monkeypatch.setenv("ASSAY_TOKEN", "")
    assert "an empty one" in error()
    monkeypatch.setenv("ASSAY_TOKEN", "secret")
    assert "found none; check the path" in error("--host", "0.0.0.0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "guard.example"])
def test_other_machines_need_a_token_unless_insecure_is_said(host, monkeypatch):
    from assay.cli import app

    monkeypatch.delenv("ASSAY_TOKEN", raising=False)

    def error(*options):
        arguments = ["serve", "no.safetensors", "my:net", "--host", host, *options]
        return str(CliRunner().invoke(app, arguments).exception)

    assert "or pass --insecure" in error()
    for more in (["--insecure"], ["--token", "secret"]):
        assert "found none; check the path" in error(*more)


def test_which_hosts_are_this_machine():
    assert all(map(is_this_machine, ["127.0.0.1", "127.1.2.3", "::1", "localhost"]))


# Slow and lost bodies


class Body:
    """A request whose body comes when the test says so."""

    def __init__(self, service):
        self.service, self.parts, self.sent = service, asyncio.Queue(), []

    def start(self):
        self.task = asyncio.create_task(self.service.app(self.scope(), self.parts.get, self.send))

    def scope(self):
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        return {"type": "http", "method": "POST", "path": INFER, "query_string": b"", "headers": headers}

    def give(self, part, more):
        self.parts.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def leave(self):
        self.parts.put_nowait({"type": "http.disconnect"})

    async def send(self, message):
        self.sent.append(message)

    async def status(self):
        await asyncio.wait_for(self.task, PATIENCE)
        return self.sent[0]["status"]


async def until(state):
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0)


def whole(service):
    body = Body(service)
    body.give(json.dumps({"inputs": [GOOD]}).encode(), more=False)
    body.start()
    return body


def begun(service, count, part=b"{"):
    bodies = [Body(service) for _ in range(count)]
    for body in bodies:
        body.give(part, more=True)
        body.start()
    return bodies


def test_slow_bodies_keep_nobody_out(guard):
    async def many():
        service = Service(Watch(guard), limits=Limits(waiting=2))
        slow = begun(service, 40)
        await until(lambda: service.body_bytes == 40)
        assert (service.reading, service.waiting) == (40, 0)
        assert await whole(service).status() == 200
        for body in slow:
            body.leave()
        assert {await body.status() for body in slow} == {400}
        assert (service.body_bytes, service.reading, service.waiting) == (0, 0, 0)

    asyncio.run(many())


def test_a_body_that_does_not_come_gets_a_408(guard):
    async def late():
        service = Service(Watch(guard), limits=Limits(body_seconds=0.01))
        (slow,) = begun(service, 1)
        assert await slow.status() == 408
        assert (b"connection", b"close") in slow.sent[0]["headers"]
        assert b"within 0.01 seconds" in slow.sent[1]["body"]
        assert (service.body_bytes, service.reading) == (0, 0)

    asyncio.run(late())


def test_bodies_on_their_way_are_bounded_together(guard):
    async def full():
        service = Service(Watch(guard), limits=Limits(waiting=2, body=1000))
        slow = begun(service, 2, b" " * 1000)
        await until(lambda: service.body_bytes == 2000)
        assert await whole(service).status() == 503
        slow[0].leave()
        assert await slow[0].status() == 400
        assert await whole(service).status() == 200
        slow[1].give(b" ", more=True)
        assert await slow[1].status() == 413
        assert service.body_bytes == 0

    asyncio.run(full())


# Connections


@contextlib.contextmanager
def served(app, **options):
    place = listening_socket("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(app, ws="none", log_config=None, **{"http": PromptConnection} | options)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        yield place.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        place.close()


def exchanged(address, sent):
    """Everything the server says until it closes the connection."""
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        connection.sendall(sent)
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return answer


HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


class Hasty(PromptConnection):
    idle_seconds = 0.02
    looks = 0

    def _close_if_idle(self, answered_before):
        Hasty.looks += 1
        super()._close_if_idle(answered_before)


async def left(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


def answered(address, request):
    with contextlib.suppress(ConnectionError):
        return b"at last" in exchanged(address, request)
    return False


def test_connections_that_ask_nothing_are_closed_and_those_being_answered_are_not(guard):
    async def waits(scope, receive, send):
        before, leaving = Hasty.looks, asyncio.create_task(left(receive))
        while Hasty.looks < before + 3 and not leaving.done():
            await asyncio.sleep(0.001)
        await PlainTextResponse("at last")(scope, receive, send)

    with served(waits, http=Hasty, lifespan="off") as address:
        assert exchanged(address, b"") == b""
        with contextlib.suppress(ConnectionResetError):
            assert exchanged(address, HEAD[:-4]) == b""
        # A busy machine may take longer to ask than these connections may idle; then it asks again.
        assert any(answered(address, HEAD + b"Content-Length: 0\r\n\r\n") for _ in range(100))


def test_over_a_real_connection(guard, caplog):
    limits = Limits(body_seconds=0.05, body=1000)
    with served(Service(Watch(guard), limits=limits).app) as address:
        late = exchanged(address, HEAD + b"Content-Length: 50\r\n\r\n{")
        assert late.startswith(b"HTTP/1.1 408 ")
        assert b"expected the whole body within 0.05 seconds" in late
        huge = exchanged(address, HEAD + b"X: " + b"x" * 100_000)
        assert huge.startswith(b"HTTP/1.1 400 ")
        with socket.create_connection(address) as leaving:
            leaving.sendall(HEAD + b"Content-Length: 50\r\n\r\n{")
        endless = HEAD + b"Connection: close\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"
        assert b" 400 " in exchanged(address, endless).partition(b"\r\n")[0]
        rows = json.dumps({"inputs": [GOOD]}).encode()
        fine = HEAD + b"Connection: close\r\nContent-Length: " + str(len(rows)).encode() + b"\r\n\r\n" + rows
        assert exchanged(address, fine).startswith(b"HTTP/1.1 200 ")
    assert "Traceback" not in caplog.text


def test_an_address_of_the_sixth_version():
    with listening_socket("::1", 0) as place:
        assert address_of(place) == f"http://[::1]:{place.getsockname()[1]}"
    with pytest.raises(InputError, match=r"a free address, got no\.such\.invalid:0"):
        listening_socket("no.such.invalid", 0)
