"""Alerts reach a real HTTP server once, in its form; what fails is tried again, and no secret is printed."""

import datetime
import http.server
import json
import logging
import threading

import pytest
import torch

import assay
from assay.errors import InputError
from assay.web import alerts
from assay.web.alerts import AlertmanagerForm, AlertSender, SlackForm, Webhook, alerting, raised

SECRET = "T000/B000/verysecret"


class Receiver:
    """A server that keeps what it got and answers with the next of `statuses` (then 200)."""

    def __init__(self):
        self.got, self.statuses = [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, json.loads(body)))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    found = Receiver()
    yield found
    found.close()


def sender_of(hook, found):
    return AlertSender([hook], "signs", lambda: dict(found))


def test_slack_is_told_once_when_something_is_new(receiver):
    found = {}
    sender = sender_of(Webhook(receiver.address, SlackForm()), found)
    sender.step(0.0)
    assert receiver.got == []
    found["AssayDrift"] = "5 < 6 & rising"
    for now in (5.0, 10.0, 500.0):
        sender.step(now)
    ((path, message),) = receiver.got
    assert path == f"/services/{SECRET}"
    assert message == {"text": ":rotating_light: *AssayDrift* (signs): 5 &lt; 6 &amp; rising"}
    del found["AssayDrift"]
    sender.step(600.0)
    found["AssayDrift"] = "again"
    sender.step(605.0)
    assert len(receiver.got) == 2


def test_alertmanager_hears_again_what_still_holds_with_the_time_it_began(receiver):
    found = {"AssayAccuracy": "fallen"}
    sender = sender_of(Webhook(receiver.address, AlertmanagerForm()), found)
    for now in (0.0, 5.0, 30.0, 61.0):
        sender.step(now)
    (first,), (again,) = (message for _, message in receiver.got)
    assert first["labels"]["alertname"] == "AssayAccuracy"
    assert first["labels"]["model"] == "signs"
    assert first["annotations"] == {"summary": "fallen"}
    assert again["startsAt"] == first["startsAt"]
    for alert in (first, again):
        begin, end = (datetime.datetime.fromisoformat(alert[name]) for name in ("startsAt", "endsAt"))
        assert (end - begin).total_seconds() >= alerts.FORGOTTEN_SECONDS - 1
    found.clear()
    sender.step(200.0)
    assert len(receiver.got) == 2  # what is over is not repeated, and ends by itself


def test_what_fails_is_tried_again_later_and_later_and_in_order(receiver, caplog):
    hook = Webhook(receiver.address, SlackForm())
    receiver.statuses = [500, 429, 503]
    hook.put({"text": "one"})
    hook.put({"text": "two"})
    pauses = []
    now = 0.0
    while hook.waiting:
        hook.send(now)
        if hook.waiting:
            pauses.append(hook.pause)
            hook.send(hook.due - 0.01)  # too early: nothing is sent
            now = hook.due
    assert pauses == [1.0, 2.0, 4.0]
    assert [message["text"] for _, message in receiver.got] == ["one"] * 4 + ["two"]
    assert SECRET not in caplog.text
    assert "127.0.0.1 failed: status 500" in caplog.text


def test_what_is_refused_for_good_does_not_block_the_rest(receiver, caplog):
    hook = Webhook(receiver.address, SlackForm())
    receiver.statuses = [404, 302]
    for text in ("one", "two", "three"):
        hook.put({"text": text})
    hook.send(0.0)
    assert not hook.waiting
    assert [message["text"] for _, message in receiver.got] == ["one", "two", "three"]
    assert caplog.text.count("refused a message") == 2


def test_the_queue_is_bounded_and_says_what_it_drops(caplog):
    hook = Webhook(f"http://127.0.0.1:9/{SECRET}", SlackForm())
    for number in range(alerts.MOST_WAITING + 5):
        hook.put({"text": str(number)})
    assert len(hook.waiting) == alerts.MOST_WAITING
    assert json.loads(hook.waiting[0]) == {"text": "5"}
    assert caplog.text.count("its oldest message was dropped") == 5
    hook.send(0.0)  # nobody listens there
    assert len(hook.waiting) == alerts.MOST_WAITING
    assert "ConnectionRefusedError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "address", ["", f"ftp://x/{SECRET}", f"hooks.slack.com/{SECRET}", f"http://[{SECRET}"]
)
def test_an_address_that_is_none_is_refused_without_being_shown(address):
    with pytest.raises(InputError, match="begins with http") as error:
        Webhook(address, SlackForm())
    assert SECRET not in str(error.value)


def drifted_watch():
    torch.manual_seed(0)
    network = assay.Network(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    )
    clean = network.observe(torch.randn(400, 4))
    guard = assay.Guard(network, assay.monitors.Mahalanobis().fit(
        network.observe((torch.randn(400, 4), torch.arange(400) % 3)))).calibrate(clean, 0.1)  # fmt: skip
    drift = assay.DriftWatch(false_alarm_rate=0.01).calibrate(guard.judge(clean).alarm)
    return assay.Watch(guard, drift=drift)


def test_a_watch_that_has_seen_a_change_is_told_while_it_goes_on(receiver, monkeypatch, eventually):
    watch = drifted_watch()
    assert raised(watch) == {}
    monkeypatch.setattr(alerts, "LOOK_SECONDS", 0.01)
    with alerting(watch, "signs", [Webhook(receiver.address, SlackForm())]):
        watch(torch.randn(200, 4))
        watch(20 * torch.randn(400, 4))
        eventually(lambda: receiver.got)
    assert len(receiver.got) == 1
    assert "AssayDrift" in receiver.got[0][1]["text"]


def test_a_crash_of_the_sender_stops_nothing(receiver, monkeypatch, caplog, eventually):
    monkeypatch.setattr(alerts, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(alerts, "raised", lambda watch: 1 / 0)
    with caplog.at_level(logging.ERROR), alerting(None, "signs", [Webhook(receiver.address, SlackForm())]):
        eventually(lambda: caplog.text.count("alerts: ZeroDivisionError") >= 2)
