"""Policies and operator policies: alike but for who may set them."""

from collections.abc import Callable
from typing import Literal

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from warrenmq.admin.protocol import control
from warrenmq.management.access import (
    ManagementUser,
    VhostReader,
    administrator,
    policymaker,
    vhost_reader,
)
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.errors import not_found
from warrenmq.management.objects.listings import named
from warrenmq.management.objects.parameters import policies
from warrenmq.management.rows import ObjectReply, PageReply, paged, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")


class PolicyRoutes:
    """The routes below `path` for the policies of one kind, for the callers that `setter` takes.

    Others see the lists of what is in force.
    """

    def __init__(
        self,
        path: str,
        kind: control.PolicyKind,
        listing: Literal["policies", "operator_policies"],
        setter: Callable[..., Caller],
    ) -> None:
        self._kind: control.PolicyKind = kind
        self._listing = listing
        one = f"{path}/{{vhost:segment}}/{{name:segment}}"
        router.add_api_route(path, self.all, methods=["GET"])
        router.add_api_route(f"{path}/{{vhost:segment}}", self.of_vhost, methods=["GET"])
        expect_setter = [Depends(setter)]
        router.add_api_route(one, self.one, methods=["GET"], dependencies=expect_setter)
        router.add_api_route(one, self.put, methods=["PUT"], dependencies=expect_setter)
        router.add_api_route(one, self.delete, methods=["DELETE"], dependencies=expect_setter)

    def all(self, request: Request, caller: ManagementUser) -> PageReply:
        """The policies of all vhosts that the user sees."""
        return paged(request, policies(caller, self._listing))

    def of_vhost(self, request: Request, caller: VhostReader, vhost: str) -> PageReply:
        """The policies of a vhost."""
        return paged(request, policies(caller, self._listing, vhost))

    def one(self, request: Request, caller: VhostReader, vhost: str, name: str) -> ObjectReply:
        """One policy."""
        return single(request, named(policies(caller, self._listing, vhost), name))

    def put(self, caller: ManagementUser, vhost: str, name: str, body: JsonBody) -> Response:
        """Set a policy: 201 for a new one, else 204."""
        is_new = name not in self._names(caller, vhost)
        caller.call(self._policy(vhost, name, body), control.Done)
        return Response(status_code=201 if is_new else 204)

    def delete(self, caller: ManagementUser, vhost: str, name: str) -> Response:
        """Delete a policy."""
        if name not in self._names(caller, vhost):
            raise not_found()
        request = control.ClearPolicy(vhost=vhost, name=name, kind=self._kind)
        caller.call(request, control.Done)
        return Response(status_code=204)

    def _policy(self, vhost: str, name: str, body: Body) -> control.SetPolicy:
        body.require("pattern", "definition")
        return control.SetPolicy(
            vhost=vhost,
            name=name,
            pattern=body.text("pattern"),
            definition=msgspec.json.encode(body.table("definition")).decode(),
            priority=body.number("priority"),
            apply_to=body.text("apply-to", "all"),
            kind=self._kind,
        )

    def _names(self, caller: Caller, vhost: str) -> set[str]:
        """The names of the policies of a vhost that the caller sees. Raises HttpRefusal."""
        return {row["name"] for row in policies(vhost_reader(caller, vhost), self._listing, vhost)}


PolicyRoutes("/policies", "policy", "policies", policymaker)
PolicyRoutes("/operator-policies", "operator_policy", "operator_policies", administrator)
