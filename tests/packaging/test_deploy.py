"""The files of deploy/ fit the node: options, keys, ports, paths of probes, commands, users."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.brokers.http_api import HttpNode
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import warrenctl
from tests.support.environments import ROOT
from warrenmq import __version__
from warrenmq.cli.control.programs import COMMANDS
from warrenmq.cli.server import flags_of, server_parser
from warrenmq.server.config.load import read_sources

DEPLOY = ROOT / "deploy"
IMAGE = f"warren:{__version__}"
MANIFESTS = ("one-node.yaml", "three-nodes.yaml", "etcd.yaml")
PROBES = ("startup", "liveness", "readiness")
Object = dict[str, Any]


@cache
def containerfile() -> list[tuple[str, str]]:
    """The instructions of the last stage, with their arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found = [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)
    ]
    last = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def instruction(name: str) -> str:
    return next(rest for found, rest in containerfile() if found == name)


def image_environment() -> dict[str, str]:
    words = " ".join(rest for name, rest in containerfile() if name == "ENV").split()
    pairs = [word.partition("=") for word in words]
    return {name: value for name, _, value in pairs}


def objects(name: str) -> list[Object]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def of_kind(name: str, kind: str) -> list[Object]:
    return [each for each in objects(name) if each["kind"] == kind]


def pod_of(name: str) -> Object:
    (found,) = of_kind(name, "StatefulSet")
    pod: Object = found["spec"]["template"]["spec"]
    return pod


def container_of(name: str) -> Object:
    (found,) = pod_of(name)["containers"]
    container: Object = found
    return container


def ports_of(container: Object) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in container["ports"]}


def settings(arguments: list[str], environment: dict[str, str]) -> Any:
    """The configuration of a node with this command line, which must be valid."""
    loaded = read_sources(flags_of(server_parser().parse_args(arguments)), environment)
    assert loaded.errors == []
    return loaded.config


def image_settings(tmp_path: Path, arguments: list[str], **environment: str) -> Any:
    """The same, in the image."""
    (tmp_path / "warren").mkdir(exist_ok=True)
    given = {**image_environment(), "WARREN_CONFIG_FILE": str(tmp_path / "warren"), **environment}
    return settings(arguments, given)


def test_the_image_runs_a_node_without_rights(tmp_path: Path) -> None:
    config = image_settings(tmp_path, [])
    assert config.data_dir == Path(instruction("VOLUME")) == Path("/var/lib/warren")
    listening = [
        *(port for _, port in config.tcp_listeners),
        config.cluster.listen[1],
        *(each.port for each in config.management.api_listeners()),
        *(each.port for each in config.prometheus.metrics_listeners()),
    ]
    # 5671 is free for TLS, which needs certificates.
    assert {*listening, 5671} == {int(port) for port in instruction("EXPOSE").split()}
    assert all(each.host == "0.0.0.0" for each in config.management.api_listeners())
    assert instruction("USER") == "10001:10001"
    assert instruction("STOPSIGNAL") == "SIGTERM"
    assert json.loads(instruction("ENTRYPOINT"))[-2:] == ["warren", "server"]
    program, *_, command = json.loads(instruction("HEALTHCHECK").partition("CMD")[2])
    assert program == "warrenctl" and command in COMMANDS


def test_the_image_is_built_from_what_the_context_has() -> None:
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".containerignore").read_text(), re.MULTILINE)
    copied = re.findall(
        r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE
    )
    assert sorted(" ".join(copied).split()) == sorted(let_in)
    assert all((ROOT / path).exists() for path in let_in)


def test_the_lock_becomes_constraints() -> None:
    """Each locked requirement is a line, without the hashes."""
    script = re.search(r"sed -n '(.*)' dev.lock", (DEPLOY / "Containerfile").read_text())
    assert script is not None
    lock = ROOT / "requirements" / "dev.lock"
    made = subprocess.run(
        ["sed", "-n", script[1], str(lock)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert all(re.match(r"^[a-z0-9._-]+(\[\w+\])?==\S+", line) for line in made)
    assert len(made) == len(re.findall(r"^[a-z0-9]", lock.read_text(), re.MULTILINE))
    assert any(line.startswith("uvloop==") for line in made)


def test_the_compose_file_starts_a_node_that_keeps_its_data(tmp_path: Path) -> None:
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = composed["services"]["warren"]
    assert service["image"] == IMAGE
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    environment = dict(service["environment"])
    name = Path(environment.pop("WARREN_DEFAULT_PASS_FILE")).name
    assert set(service["secrets"]) == {name} == set(composed["secrets"])
    config = image_settings(tmp_path, [], **environment, WARREN_DEFAULT_PASS_FILE=str(password))
    assert (config.default_user, config.default_pass) == ("admin", "s3cret")
    exposed = instruction("EXPOSE").split()
    assert all(port.rpartition(":")[2] in exposed for port in service["ports"])
    volume, _, target = service["volumes"][0].partition(":")
    assert target == instruction("VOLUME") and set(composed["volumes"]) == {volume}


@pytest.mark.parametrize("name", MANIFESTS)
def test_objects_of_kubernetes_name_each_other(name: str) -> None:
    (stateful,) = of_kind(name, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert stateful["spec"]["selector"]["matchLabels"] == labels
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(name, "Service")}
    assert services[stateful["spec"]["serviceName"]]["clusterIP"] == "None"
    container, pod = container_of(name), pod_of(name)
    ports = ports_of(container)
    for service in services.values():
        assert service["selector"] == labels
        for each in service["ports"]:
            assert ports[each["targetPort"]] == each["port"]
    for budget in of_kind(name, "PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] == labels
        assert budget["spec"]["maxUnavailable"] < stateful["spec"]["replicas"]
    for spread in pod.get("topologySpreadConstraints", []):
        assert spread["labelSelector"]["matchLabels"] == labels
    claimed = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    volumes = claimed | {each["name"] for each in pod.get("volumes", [])}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    for probe in PROBES:
        asked = container.get(f"{probe}Probe", {})
        for request in (asked.get("httpGet"), asked.get("tcpSocket")):
            assert request is None or request["port"] in ports
    security = {**pod["securityContext"], **container["securityContext"]}
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", MANIFESTS[:2])
def test_nodes_in_kubernetes_start_with_valid_settings(name: str, tmp_path: Path) -> None:
    container = container_of(name)
    assert container["image"] == IMAGE
    (stateful,) = of_kind(name, "StatefulSet")
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts[instruction("VOLUME")] == "data"
    arguments = [
        each.replace("$(POD_NAME)", f"{stateful['metadata']['name']}-0").replace(
            "/etc/warren-definitions", str(definitions)
        )
        for each in container["args"]
    ]
    assert "/etc/warren-definitions" in mounts
    config = image_settings(tmp_path, arguments)
    ports = ports_of(container)
    assert config.tcp_listeners[0][1] == ports["amqp"]
    assert config.management.api_listeners()[0].port == ports["management"]
    assert config.prometheus.metrics_listeners()[0].port == ports["metrics"]
    if "links" not in ports:
        return
    # The cluster: each node is dialled by its name, and etcd is the one of etcd.yaml.
    assert config.cluster.listen[1] == ports["links"]
    assert config.node_name == "warren@warren-0.warren-nodes"
    assert stateful["spec"]["serviceName"] == "warren-nodes"
    (etcd,) = of_kind("etcd.yaml", "StatefulSet")
    service, client = etcd["spec"]["serviceName"], ports_of(container_of("etcd.yaml"))["client"]
    assert list(config.cluster.etcd) == [
        f"http://{etcd['metadata']['name']}-{number}.{service}:{client}"
        for number in range(etcd["spec"]["replicas"])
    ]


def test_probes_see_whether_a_node_lives_and_takes_clients(tmp_path: Path) -> None:
    """They log in as a user of the definitions who may do nothing else."""
    definitions = DEPLOY / "kubernetes" / "definitions.json"
    node = HttpNode(tmp_path, BrokerProcess(tmp_path, f"load_definitions={definitions}"))
    node.start()

    def answers() -> list[int]:
        """Statuses of startup, liveness and readiness, which are the same in both manifests."""
        found = []
        for name in MANIFESTS[:2]:
            container = container_of(name)
            requests = [container[f"{each}Probe"]["httpGet"] for each in PROBES]
            found.append(
                [
                    httpx.get(
                        node.url.rstrip("/") + request["path"],
                        headers={each["name"]: each["value"] for each in request["httpHeaders"]},
                    ).status_code
                    for request in requests
                ]
            )
        assert found[0] == found[1]
        return found[0]

    try:
        assert answers() == [200, 200, 200]
        user = next(
            each for each in json.loads(definitions.read_text())["users"] if each["name"] == "probe"
        )
        client = node.client(user["name"], user["password"])
        assert client.get("queues").json() == []
        assert client.get("users").status_code == 401
        assert warrenctl(tmp_path / "data", "drain").code == 0
        assert answers() == [200, 200, 503]
        assert node.node.stop() == 0
    finally:
        node.node.kill()


@pytest.mark.parametrize("name", MANIFESTS[:2])
def test_a_node_drains_before_it_stops(name: str) -> None:
    command = container_of(name)["lifecycle"]["preStop"]["exec"]["command"]
    steps = [step.split() for step in command[-1].split(";")] if "sh" in command else [command]
    assert all(step[0] == "warrenctl" and step[2] in COMMANDS for step in steps)
    assert steps[-1][-1] == "drain"
    waiting_s = sum(int(step[4]) for step in steps if "--timeout" in step)
    assert pod_of(name)["terminationGracePeriodSeconds"] >= waiting_s + 120


def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    if shutil.which("logrotate") is None:
        pytest.skip("logrotate is not installed")
    text = (DEPLOY / "logrotate" / "warren").read_text()
    assert "systemctl reload warren" in text
    (tmp_path / "warren.log").write_text("a line\n")
    rotating = tmp_path / "logrotate.conf"
    # The user warren is not on this machine.
    for old, new in (("/var/log/warren", str(tmp_path)), ("warren warren", "root root")):
        text = text.replace(old, new)
    rotating.write_text(text)
    done = subprocess.run(
        ["logrotate", "--debug", "--force", "--state", str(tmp_path / "state"), str(rotating)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "error" not in done.stderr.lower(), done.stderr
    assert "rotating pattern" in done.stderr
