"""Alerts of a watched service as webhooks: in the form of Slack, or of Alertmanager.

A thread of its own looks at the watch and sends. It holds no request up: what cannot be sent waits in a
bounded queue and is tried again, later and later. Addresses may contain secrets, so that only their host is
ever printed.
"""

import datetime
import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from assay.accuracy.headline import AccuracyVerdict
from assay.errors import InputError
from assay.operation import Watch

LOOK_SECONDS = 5.0
"""Between two looks at the watch."""
AGAIN_SECONDS = 60.0
"""Alertmanager forgets an alert that is not repeated."""
FORGOTTEN_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a message is sent again, doubled each time."""
TIMEOUT = 10.0
MOST_WAITING = 100
"""Messages per webhook; beyond that the oldest is dropped, and said to be."""

log = logging.getLogger("assay.service")


@dataclass(frozen=True)
class Alert:
    """Something that whoever runs the service should know."""

    name: str
    words: str
    began: datetime.datetime


class Form(Protocol):
    """How a service expects its messages."""

    repeats: bool
    """Whether it must hear of an alert again and again, as long as it lasts."""

    def __call__(self, alerts: Sequence[Alert], model: str) -> Any: ...


class SlackForm:
    """https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks"""

    repeats = False

    def __call__(self, alerts: Sequence[Alert], model: str) -> Any:
        lines = [
            f":rotating_light: *{alert.name}* ({_plain(model)}): {_plain(alert.words)}" for alert in alerts
        ]
        return {"text": "\n".join(lines)}


class AlertmanagerForm:
    """POST /api/v2/alerts of Alertmanager's API v2."""

    repeats = True

    def __call__(self, alerts: Sequence[Alert], model: str) -> Any:
        end = _now() + datetime.timedelta(seconds=FORGOTTEN_SECONDS)
        return [
            {
                "labels": {
                    "alertname": alert.name,
                    "service": "assay",
                    "model": model,
                    "severity": "warning",
                },
                "annotations": {"summary": alert.words},
                "startsAt": alert.began.isoformat(),
                "endsAt": end.isoformat(),
            }
            for alert in alerts
        ]


@dataclass
class Webhook:
    """An address and the form it expects; `waiting` are messages that have not arrived yet."""

    address: str
    form: Form
    waiting: deque[bytes] = field(default_factory=deque)
    pause: float = 0.0
    due: float = 0.0
    repeated: float = float("-inf")

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.address)
        except ValueError:  # brackets that hold no address
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                "expected the address of a webhook that begins with http:// or https://, got another; it "
                "is not shown, since it may contain a secret"
            )

    @property
    def host(self) -> str:
        """All that is ever printed of the address."""
        return str(urlsplit(self.address).hostname)

    def put(self, message: Any) -> None:
        self.waiting.append(json.dumps(message).encode())
        if len(self.waiting) > MOST_WAITING:
            self.waiting.popleft()
            log.error("a webhook of %s has not answered for long: its oldest message was dropped", self.host)

    def send(self, now: float) -> None:
        """Send what waits, in order, until something goes wrong; then wait longer each time."""
        while self.waiting and now >= self.due:
            problem, final = posted(self.address, self.waiting[0])
            if not problem or final:
                self.waiting.popleft()
                self.pause = 0.0
            if problem:
                log.error(
                    "a webhook of %s %s: %s", self.host, "refused a message" if final else "failed", problem
                )
            if problem and not final:
                self.pause = min(2 * self.pause or FIRST_PAUSE, LONGEST_PAUSE)
                self.due = now + self.pause


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def posted(address: str, body: bytes) -> tuple[str, bool]:
    """What went wrong, in words without the address, and whether another try is in vain; "" if it arrived."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"status {error.code}", error.code < 500 and error.code not in (408, 429)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None)
        return type(reason if isinstance(reason, Exception) else error).__name__, False


def raised(watch: Watch) -> dict[str, str]:
    """What the watch has raised the alarm about, by name, in words."""
    state = watch.state_now()
    found = {}
    if state.drift is not None and state.drift.alarm:
        found["AssayDrift"] = state.drift.summary()
    if state.volatility is not None and state.volatility.alarm:
        found["AssayVolatility"] = state.volatility.summary()
    now = None if state.history is None else state.history.latest
    if now is not None and now.verdict == AccuracyVerdict.FALLEN:
        found["AssayAccuracy"] = (
            f"Accuracy has fallen: {now.value:.1%} in the last window (95 % interval {now.lower:.1%} to "
            f"{now.upper:.1%}); {now.reason}."
        )
    return found


class AlertSender:
    """Looks at a watch and tells the webhooks what is new, and Alertmanager what still holds."""

    def __init__(self, hooks: Sequence[Webhook], model: str, look: Callable[[], dict[str, str]]) -> None:
        self.hooks, self.model, self.look = hooks, model, look
        self.alerts: dict[str, Alert] = {}

    def step(self, now: float) -> None:
        """One look, and one try to send."""
        found = self.look()
        fresh = [Alert(name, words, _now()) for name, words in found.items() if name not in self.alerts]
        lasting = {name: alert for name, alert in self.alerts.items() if name in found}
        self.alerts = lasting | {alert.name: alert for alert in fresh}
        for hook in self.hooks:
            if hook.form.repeats:
                self._repeat(hook, bool(fresh), now)
            elif fresh:
                hook.put(hook.form(fresh, self.model))
            hook.send(now)

    def _repeat(self, hook: Webhook, fresh: bool, now: float) -> None:
        """Everything that holds, when something is new or a while has passed; what waited is out of date."""
        if self.alerts and (fresh or now - hook.repeated >= AGAIN_SECONDS):
            hook.waiting.clear()
            hook.put(hook.form(list(self.alerts.values()), self.model))
            hook.repeated = now


@contextmanager
def alerting(watch: Watch, model: str, hooks: Sequence[Webhook]) -> Iterator[None]:
    """Sends alerts while the block runs, and once more at its end."""
    if not hooks:
        yield
        return
    import time

    sender, ended = AlertSender(hooks, model, lambda: raised(watch)), threading.Event()

    def run() -> None:
        while not ended.wait(LOOK_SECONDS):
            _guarded(sender, time.monotonic())
        _guarded(sender, time.monotonic())

    thread = threading.Thread(target=run, name="alerts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(2 * TIMEOUT)


def _guarded(sender: AlertSender, now: float) -> None:
    """Whatever goes wrong here must stop neither alerts nor predictions."""
    try:
        sender.step(now)
    except Exception as error:
        log.error("alerts: %s", type(error).__name__)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _plain(text: str) -> str:
    """Text that Slack shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
