"""Policies, operator policies, parameters and global parameters."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol import control
from warrenmq.management.access import (
    Administrator,
    ManagementUser,
    Policymaker,
    VhostReader,
    vhost_reader,
)
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.errors import not_found
from warrenmq.management.objects.listings import named, with_values
from warrenmq.management.objects.parameters import parameters, policies
from warrenmq.management.rows import JsonReply, Row, listed, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")


# -- policies --------------------------------------------------------------------------------------


@router.get("/policies")
def all_policies(request: Request, caller: ManagementUser) -> JsonReply:
    """The policies of all vhosts that the user sees."""
    return listed(request, policies(caller, "policies"))


@router.get("/policies/{vhost:segment}")
def policies_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """The policies of a vhost."""
    return listed(request, policies(caller, "policies", vhost))


@router.get("/policies/{vhost:segment}/{name:segment}")
def one_policy(request: Request, caller: VhostReader, vhost: str, name: str) -> JsonReply:
    """One policy."""
    return single(request, named(policies(caller, "policies", vhost), name))


@router.get("/operator-policies")
def all_operator_policies(request: Request, caller: ManagementUser) -> JsonReply:
    """The operator policies of all vhosts that the user sees."""
    return listed(request, policies(caller, "operator_policies"))


@router.get("/operator-policies/{vhost:segment}")
def operator_policies_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """The operator policies of a vhost."""
    return listed(request, policies(caller, "operator_policies", vhost))


@router.get("/operator-policies/{vhost:segment}/{name:segment}")
def one_operator_policy(request: Request, caller: VhostReader, vhost: str, name: str) -> JsonReply:
    """One operator policy."""
    return single(request, named(policies(caller, "operator_policies", vhost), name))


# -- parameters ------------------------------------------------------------------------------------


@router.get("/parameters")
def all_parameters(request: Request, caller: Policymaker) -> JsonReply:
    """The parameters of all components in all vhosts that the user sees."""
    return listed(request, parameters(caller))


@router.get("/parameters/{component:segment}")
def parameters_of_component(request: Request, caller: Policymaker, component: str) -> JsonReply:
    """The parameters of a component."""
    return listed(request, _of_component(parameters(caller), component))


@router.get("/parameters/{component:segment}/{vhost:segment}")
def parameters_of_vhost(
    request: Request, caller: Policymaker, component: str, vhost: str
) -> JsonReply:
    """The parameters of a component in a vhost."""
    return listed(request, _of_component(_parameters_in(caller, vhost), component))


@router.get("/parameters/{component:segment}/{vhost:segment}/{name:segment}")
def one_parameter(
    request: Request, caller: Policymaker, component: str, vhost: str, name: str
) -> JsonReply:
    """One parameter."""
    return single(request, named(_of_component(_parameters_in(caller, vhost), component), name))


@router.get("/global-parameters")
def all_global_parameters(request: Request, caller: Administrator) -> JsonReply:
    """The parameters of the whole broker."""
    return listed(request, _global_parameters(caller))


@router.get("/global-parameters/{name:segment}")
def one_global_parameter(request: Request, caller: Administrator, name: str) -> JsonReply:
    """One parameter of the whole broker."""
    return single(request, named(_global_parameters(caller), name))


def _parameters_in(caller: Caller, vhost: str) -> list[Row]:
    return parameters(vhost_reader(caller, vhost), vhost)


def _of_component(rows: list[Row], component: str) -> list[Row]:
    return [row for row in rows if row["component"] == component]


def _global_parameters(caller: Caller) -> list[Row]:
    return with_values(caller.rows("global_parameters", ["name", "value"]), "value", "value")


# -- changes ---------------------------------------------------------------------------------------


@router.put("/policies/{vhost:segment}/{name:segment}")
def set_policy(caller: Policymaker, vhost: str, name: str, body: JsonBody) -> Response:
    """Set a policy: 201 for a new one, else 204."""
    is_new = name not in _names(caller, "policies", vhost)
    caller.call(_policy(vhost, name, body, "policy"), control.Done)
    return Response(status_code=201 if is_new else 204)


@router.delete("/policies/{vhost:segment}/{name:segment}")
def clear_policy(caller: Policymaker, vhost: str, name: str) -> Response:
    """Delete a policy."""
    if name not in _names(caller, "policies", vhost):
        raise not_found()
    caller.call(control.ClearPolicy(vhost=vhost, name=name), control.Done)
    return Response(status_code=204)


@router.put("/operator-policies/{vhost:segment}/{name:segment}")
def set_operator_policy(caller: Administrator, vhost: str, name: str, body: JsonBody) -> Response:
    """Set an operator policy: 201 for a new one, else 204."""
    is_new = name not in _names(caller, "operator_policies", vhost)
    caller.call(_policy(vhost, name, body, "operator_policy"), control.Done)
    return Response(status_code=201 if is_new else 204)


@router.delete("/operator-policies/{vhost:segment}/{name:segment}")
def clear_operator_policy(caller: Administrator, vhost: str, name: str) -> Response:
    """Delete an operator policy."""
    if name not in _names(caller, "operator_policies", vhost):
        raise not_found()
    request = control.ClearPolicy(vhost=vhost, name=name, kind="operator_policy")
    caller.call(request, control.Done)
    return Response(status_code=204)


@router.put("/parameters/{component:segment}/{vhost:segment}/{name:segment}")
def set_parameter(
    caller: Policymaker, component: str, vhost: str, name: str, body: JsonBody
) -> Response:
    """Set a parameter: 201 for a new one, else 204."""
    body.require("value")
    rows = _of_component(_parameters_in(caller, vhost), component)
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


def _policy(vhost: str, name: str, body: Body, kind: control.PolicyKind) -> control.SetPolicy:
    body.require("pattern", "definition")
    return control.SetPolicy(
        vhost=vhost,
        name=name,
        pattern=body.text("pattern"),
        definition=msgspec.json.encode(body.table("definition")).decode(),
        priority=body.number("priority"),
        apply_to=body.text("apply-to", "all"),
        kind=kind,
    )


def _names(caller: Caller, what: Any, vhost: str) -> set[str]:
    """The names of the policies of a vhost that the caller may enter. Raises HttpRefusal."""
    return {row["name"] for row in policies(vhost_reader(caller, vhost), what, vhost)}
