"""Parameters of components, and those of the whole broker."""

from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol import control
from warrenmq.management.access import Administrator, Policymaker, vhost_reader
from warrenmq.management.bodies import JsonBody
from warrenmq.management.errors import bad_request
from warrenmq.management.objects.listings import named, with_values
from warrenmq.management.objects.parameters import parameters
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")

# Components whose parameters may be set here: those of RabbitMQ's plug-ins, whose values tools keep
# in a broker. The node refuses "policy" in RabbitMQ's words.
_COMPONENTS: Final = (
    "federation", "federation-upstream", "federation-upstream-set", "policy", "shovel",
)  # fmt: skip


@router.get("/parameters")
def all_parameters(request: Request, caller: Policymaker) -> ListReply:
    """The parameters of all components in all vhosts that the user sees."""
    return listed(request, parameters(caller))


@router.get("/parameters/{component:segment}")
def parameters_of_component(request: Request, caller: Policymaker, component: str) -> ListReply:
    """The parameters of a component."""
    return listed(request, _of_component(parameters(caller), component))


@router.get("/parameters/{component:segment}/{vhost:segment}")
def parameters_of_vhost(
    request: Request, caller: Policymaker, component: str, vhost: str
) -> ListReply:
    """The parameters of a component in a vhost."""
    return listed(request, _of_component(_parameters_in(caller, vhost), component))


@router.get("/parameters/{component:segment}/{vhost:segment}/{name:segment}")
def one_parameter(
    request: Request, caller: Policymaker, component: str, vhost: str, name: str
) -> ObjectReply:
    """One parameter."""
    return single(request, named(_of_component(_parameters_in(caller, vhost), component), name))


@router.get("/global-parameters")
def all_global_parameters(request: Request, caller: Administrator) -> ListReply:
    """The parameters of the whole broker."""
    return listed(request, _global_parameters(caller))


@router.get("/global-parameters/{name:segment}")
def one_global_parameter(request: Request, caller: Administrator, name: str) -> ObjectReply:
    """One parameter of the whole broker."""
    return single(request, named(_global_parameters(caller), name))


@router.put("/parameters/{component:segment}/{vhost:segment}/{name:segment}")
def set_parameter(
    caller: Policymaker, component: str, vhost: str, name: str, body: JsonBody
) -> Response:
    """Set a parameter: 201 for a new one, else 204."""
    body.require("value")
    rows = _of_component(_parameters_in(caller, vhost), component)
    if component not in _COMPONENTS:
        raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
    value = msgspec.json.encode(body.values["value"]).decode()
    request = control.SetParameter(vhost=vhost, component=component, name=name, value=value)
    caller.call(request, control.Done)
    return Response(status_code=204 if any([row["name"] == name for row in rows]) else 201)


@router.delete("/parameters/{component:segment}/{vhost:segment}/{name:segment}")
def clear_parameter(caller: Policymaker, component: str, vhost: str, name: str) -> Response:
    """Delete a parameter."""
    named(_of_component(_parameters_in(caller, vhost), component), name)
    request = control.ClearParameter(vhost=vhost, component=component, name=name)
    caller.call(request, control.Done)
    return Response(status_code=204)


@router.put("/global-parameters/{name:segment}")
def set_global_parameter(caller: Administrator, name: str, body: JsonBody) -> Response:
    """Set a parameter of the whole broker: 201 for a new one, else 204."""
    body.require("value")
    is_new = all([row["name"] != name for row in _global_parameters(caller)])
    value = msgspec.json.encode(body.values["value"]).decode()
    caller.call(control.SetGlobalParameter(name=name, value=value), control.Done)
    return Response(status_code=201 if is_new else 204)


@router.delete("/global-parameters/{name:segment}")
def clear_global_parameter(caller: Administrator, name: str) -> Response:
    """Delete a parameter of the whole broker."""
    named(_global_parameters(caller), name)
    caller.call(control.ClearGlobalParameter(name=name), control.Done)
    return Response(status_code=204)


def _parameters_in(caller: Caller, vhost: str) -> list[Row]:
    return parameters(vhost_reader(caller, vhost), vhost)


def _of_component(rows: list[Row], component: str) -> list[Row]:
    return [row for row in rows if row["component"] == component]


def _global_parameters(caller: Caller) -> list[Row]:
    return with_values(caller.rows("global_parameters", ["name", "value"]), "value", "value")
