"""Files for other systems are what these systems take, and name what a guard has.

Kubernetes' own objects are held to its published schemas (kubernetes-validate, as kubeconform does, without
a network). No schema of KServe's is installable, so its part is checked by hand; the Containerfile is parsed
and its names are looked up, not built: there is no engine here.
"""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import onnx
import pytest
import torch
import yaml
from dockerfile_parse import DockerfileParser
from torch import nn
from typer.main import get_command

import assay
from assay.cli import app
from assay.web.service import OPEN_PATHS

DEPLOY = Path(__file__).parents[1] / "deploy"
ROOT = DEPLOY.parent
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
KSERVE = list(yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text()))
POD = OBJECTS[0]["spec"]["template"]["spec"]


def parsed(arguments):
    """The options of `assay serve`, read by the command itself."""
    assert arguments[0] == "serve"
    command = get_command(app).commands["serve"]
    return command.make_context("serve", list(arguments[1:])).params


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: thing["kind"])
def test_kubernetes_takes_it(thing):
    for version in ("1.31", kubernetes_validate.latest_version().rpartition(".")[0]):
        kubernetes_validate.validate(thing, version, strict=True)
    broken = thing | {"spec": thing["spec"] | {"no_such_field": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_what_belongs_together_has_the_same_name():
    deployment, service, budget = OBJECTS
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert labels == budget["spec"]["selector"]["matchLabels"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    (container,) = POD["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in POD["volumes"]}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    options = parsed(container["args"])
    assert ports["http"] == options["port"]
    assert service["metadata"]["name"] in options["allow_host"]
    assert str(options["state"]).startswith(container["volumeMounts"][1]["mountPath"])


def test_a_pod_has_the_time_to_drain_and_its_probes_need_no_token():
    (container,) = POD["containers"]
    options = parsed(container["args"])
    assert POD["terminationGracePeriodSeconds"] > options["drain"] + options["timeout"] + 5
    readiness = container["readinessProbe"]
    assert options["drain"] > readiness["periodSeconds"] * readiness["failureThreshold"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert all(probe["path"] in OPEN_PATHS for probe in probes)
    cores = int(container["resources"]["requests"]["cpu"])
    assert cores >= options["workers"]


def test_the_container_has_files_that_exist_and_a_command_that_is_one(tmp_path):
    shutil.copy(DEPLOY / "Containerfile", tmp_path / "Dockerfile")
    lines = DockerfileParser(path=str(tmp_path)).structure
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL"}
    assert {line["instruction"] for line in lines} <= known | {"ENTRYPOINT", "CMD", "COMMENT"}
    by_name = {line["instruction"]: line["value"] for line in lines}
    copied = [name for line in lines if line["instruction"] == "COPY" for name in line["value"].split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert json.loads(by_name["ENTRYPOINT"]) == ["assay"]
    options = parsed(json.loads(by_name["CMD"]))
    assert int(by_name["EXPOSE"]) == options["port"]
    assert int(by_name["USER"]) == POD["securityContext"]["runAsUser"]
    assert str(options["state"].parent) in json.loads(by_name["VOLUME"])
    extras = re.search(r"/src\[([a-z,]+)\]", (DEPLOY / "Containerfile").read_text()).group(1).split(",")
    assert {"onnx", "web"} <= set(extras)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A guard on 8 x 8 digits, as the example in deploy/triton describes it."""
    torch.manual_seed(0)
    inputs = torch.rand(60, 1, 8, 8)
    network = assay.Network(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    trace = network.observe(inputs)
    guard = assay.Guard(network, assay.monitors.Energy().fit(trace)).calibrate(trace, 0.1)
    path = tmp_path_factory.mktemp("export") / "guard.onnx"
    guard.export(path, inputs[:2])
    return path


def entries(config, kind):
    """(name, type, dims, whether its only axis is rows) of the inputs or outputs in a config.pbtxt."""
    part = re.search(rf"{kind} \[\n(.*?)\n\]", config, re.DOTALL).group(1)
    pattern = (
        r'\{ name: "([^"]+)", data_type: TYPE_(\w+), dims: \[([-\d, ]+)\](, reshape: \{ shape: \[\] \})? \}'
    )
    return [
        (name, kind, [int(size) for size in dims.split(",")], bool(flat))
        for name, kind, dims, flat in re.findall(pattern, part)
    ]


def test_triton_is_told_the_names_and_shapes_of_the_graph(exported, tmp_path):
    triton = runpy.run_path(str(DEPLOY / "triton.py"))
    config = triton["write_repository"](exported, tmp_path)
    assert (tmp_path / "guard" / "1" / "model.onnx").read_bytes() == exported.read_bytes()
    text = config.read_text()
    assert text == (DEPLOY / "triton" / "guard" / "config.pbtxt").read_text()  # the example is up to date
    graph = onnx.load(exported).graph
    names = {"FP32": "FLOAT", "FP64": "DOUBLE", "BOOL": "BOOL"}
    for kind, values in (("input", graph.input), ("output", graph.output)):
        found = entries(text, kind)
        assert [name for name, *_ in found] == [value.name for value in values]
        for (_, datatype, dims, flat), value in zip(found, values, strict=True):
            tensor = value.type.tensor_type
            assert tensor.elem_type == onnx.TensorProto.DataType.Value(names[datatype])
            rows, *rest = tensor.shape.dim
            assert rows.dim_param  # free, so that Triton may batch
            assert ([axis.dim_value for axis in rest] or [1]) == dims
            assert flat == (not rest)
    assert text.count("{") == text.count("}")
    other = tmp_path / "other.onnx"
    graph = onnx.load(exported)
    del graph.metadata_props[:]
    onnx.save(graph, other)
    with pytest.raises(assay.AssayError, match=r"expected a guard written by Guard\.export"):
        triton["write_repository"](other, tmp_path)


def test_kserve_has_a_model_or_a_container():
    for thing in KSERVE:
        assert thing["apiVersion"] == "serving.kserve.io/v1beta1"
        assert thing["kind"] == "InferenceService"
        assert set(thing) == {"apiVersion", "kind", "metadata", "spec"}
        (predictor,) = thing["spec"].values()
        assert len(predictor) == 1
    model, container = (
        KSERVE[0]["spec"]["predictor"]["model"],
        KSERVE[1]["spec"]["predictor"]["containers"][0],
    )
    assert model["protocolVersion"] == "v2"
    assert {"modelFormat", "storageUri", "runtime"} <= set(model)
    assert container["name"] == "kserve-container"  # the name that KServe looks for
    options = parsed(container["args"])
    assert container["ports"][0]["containerPort"] == options["port"] == 8080
    kubernetes_validate.validate(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod"},
            "spec": {"containers": [container]},
        },
        "1.31",
        strict=True,
    )


ACTION = yaml.safe_load((DEPLOY / "github" / "action.yml").read_text())


def test_the_github_action_checks_and_passes_the_status_on(tmp_path):
    """Its own script, run by bash with a command in place of assay that shows what it was given."""
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
    assert not re.findall(r"\$\{\{", step["run"]), "an input must not be pasted into a script"
    assert set(re.findall(r"inputs\.(\w+)", str(ACTION["runs"]))) == set(ACTION["inputs"])
    script = '#!/bin/bash\nprintf "%s\\n" "$@" > given\necho "a gate failed"\nexit 1\n'
    (tmp_path / "assay").write_text(script)
    (tmp_path / "assay").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "NETWORK": "my.models:trained",
        "DATA": "$(touch broken) x.npz",
        "OPTIONS": "--least-accuracy 0.9 --no-teach",
        "GITHUB_STEP_SUMMARY": "summary",
        "GITHUB_OUTPUT": "output",
    }
    ran = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, check=False)
    assert ran.returncode == 1
    assert not (tmp_path / "broken").exists()
    given = (tmp_path / "given").read_text().splitlines()
    assert given[:4] == ["check", "my.models:trained", "--data", "$(touch broken) x.npz"]
    params = get_command(app).commands["check"].make_context("check", given[1:]).params
    assert (params["least_accuracy"], params["teach"]) == (0.9, False)
    assert "a gate failed" in (tmp_path / "summary").read_text()
    assert (tmp_path / "output").read_text() == "status=1\n"
