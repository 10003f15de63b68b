"""Policies, operator policies, parameters and global parameters."""

from fastapi import APIRouter, Request

from warrenmq.management.access import (
    Administrator,
    ManagementUser,
    Policymaker,
    VhostReader,
    vhost_reader,
)
from warrenmq.management.objects import named, parameters, policies, with_values
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
