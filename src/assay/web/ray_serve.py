"""The service on Ray Serve: replicas compute answers, one actor counts for all of them.

    from ray import serve
    from assay.web.ray_serve import guard_application

    serve.run(guard_application(load_watch, replicas=4, state="/shared/counts"), name="guard")

Ray starts replicas, moves them between machines and replaces those that end. A replica waits until the actor
has counted what it saw before it answers.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from assay.extras import expect_installed
from assay.operation import Watch
from assay.web.limits import Limits
from assay.web.service import Service, build_facts
from assay.web.tally import Seen, Tally


class TallyActor:
    """The tally in an actor of its own; if actors may move, every machine must see the file `state`."""

    def __init__(self, load: Callable[[], Watch], state: str | None, every: float) -> None:
        watch = load()
        self.tally = Tally(watch, build_facts(watch.guard), state, every)
        self.opened = self.tally.open()
        self.opened.__enter__()
        self.gauges: dict[str, tuple[int, int]] = {}

    def layers(self) -> Collection[str]:
        return self.tally.layers

    def add(self, seen: Seen) -> None:
        self.tally.add(seen)

    def add_request(self, replica: str, gauges: tuple[int, int], status: int, seconds: float | None) -> None:
        self.gauges[replica] = gauges
        self.tally.add_request(status, seconds)

    def text(self) -> bytes:
        waiting, reading = (sum(gauge) for gauge in zip((0, 0), *self.gauges.values(), strict=True))
        self.tally.show(waiting, reading)
        self.tally.metrics.workers.set(max(1, len(self.gauges)))
        return self.tally.text()

    def leave(self, replica: str) -> None:
        self.gauges.pop(replica, None)

    def keep(self) -> None:
        """Write the counts now; before the cluster ends."""
        if self.tally.state is not None:
            self.tally.keep()


class RayTally:
    """A replica's way to the actor: predictions are counted when `add` returns, requests soon after."""

    def __init__(self, actor: Any) -> None:
        import ray

        self.actor, self.wait_for = actor, ray.get
        self.layers: Collection[str] = ray.get(actor.layers.remote())
        self.replica = ray.get_runtime_context().get_actor_id() or str(os.getpid())
        self.gauges = (0, 0)

    def add(self, seen: Seen) -> None:
        self.wait_for(self.actor.add.remote(seen))

    def add_request(self, status: int, seconds: float | None = None) -> None:
        # Without waiting: this is called in the event loop.
        self.actor.add_request.remote(self.replica, self.gauges, status, seconds)

    def show(self, waiting: int, reading: int) -> None:
        self.gauges = waiting, reading

    def text(self) -> bytes:
        found: bytes = self.wait_for(self.actor.text.remote())
        return found

    @contextmanager
    def open(self) -> Iterator[None]:
        yield
        self.actor.leave.remote(self.replica)


def tally_name(name: str) -> str:
    """The name of the actor that counts for a model, in the namespace of Ray Serve."""
    return f"assay-tally-{name}"


def guard_application(
    load: Callable[[], Watch],
    *,
    name: str = "guard",
    replicas: int = 1,
    state: str | os.PathLike[str] | None = None,
    every: float = 10.0,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
    options: dict[str, Any] | None = None,
) -> Any:
    """A Ray Serve application: `serve.run(guard_application(load, replicas=4))`.

    `load` returns the watched guard; it runs in the actor that counts and in every replica. `options` are
    those of `serve.deployment` (ray_actor_options, autoscaling_config, max_ongoing_requests ...). The other
    arguments are those of `Service`.
    """
    expect_installed("ray", "fastapi")
    from ray import serve

    path = None if state is None else os.fspath(state)

    def application() -> Any:
        import ray

        watch = load()
        actor = (
            ray.remote(TallyActor)
            .options(
                name=tally_name(name),
                namespace="serve",
                get_if_exists=True,
                lifetime="detached",
                max_restarts=-1,
                num_cpus=0,
            )
            .remote(load, path, every)
        )
        tally = RayTally(actor)
        return Service(watch.guard, name=name, limits=limits, token=token, hosts=hosts, tally=tally).app

    deployment = serve.deployment(serve.ingress(application)(), name=name, num_replicas=replicas)
    return deployment.options(**(options or {})).bind()
