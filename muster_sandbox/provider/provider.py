"""The gRPC interface of a Pulumi provider, in front of the mappings.

The methods' contract: https://www.pulumi.com/docs/iac/extending-pulumi and Pulumi's
proto/pulumi/provider.proto. The engine doesn't call GetSchema, Construct and Call for plain
resources.
"""

import os
import threading
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

import muster_sandbox.provider.mappings  # noqa: F401  (registers them)
from muster_sandbox.provider import fields, invokes, schema
from muster_sandbox.provider.resource import MAPPINGS, Resource
from muster_sandbox.provider.rest import CloudError, Rest
from muster_sandbox.provider.values import (
    DEFAULTS,
    from_struct,
    plain,
    to_struct,
    whole_numbers,
    with_secrets_of,
)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One per engine process."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.cancelled = threading.Event()
        self.rest = Rest({}, os.environ, self.cancelled)

    # The plugin's lifecycle.

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        # accept_resources and accept_outputs stay off: values then come plain, not wrapped.
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self.version)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        # Without an answer the engine keeps the settings of the last `up`.
        olds, news = plain(from_struct(request.old_inputs)), plain(from_struct(request.news))
        changed = sorted(name for name in olds | news if olds.get(name) != news.get(name))
        response = provider_pb2.DiffResponse
        return response(
            changes=response.DIFF_SOME if changed else response.DIFF_NONE, diffs=changed
        )

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = {name: str(value) for name, value in plain(from_struct(request.args)).items()}
        self.rest = Rest(config, os.environ, self.cancelled)
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        arguments = plain(from_struct(request.args))
        try:
            answer = invokes.invoke(self.rest, request.tok, arguments)
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"invocation of {request.tok}: {failure}")
        return provider_pb2.InvokeResponse(**{"return": to_struct(answer)})

    # Resources.

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind, news = kind_of(request), from_struct(request.news)
        failures = list(refusals(kind, plain(news)))
        if failures:
            return provider_pb2.CheckResponse(
                inputs=request.news,
                failures=[
                    provider_pb2.CheckFailure(property=where, reason=sentence)
                    for where, sentence in failures
                ],
            )
        name = MAPPINGS[kind].named_by
        if name and name not in news and f"{name}Prefix" not in news:
            olds = from_struct(request.olds)
            made_up = name in olds.get(DEFAULTS, [])
            news[name] = olds[name] if made_up else autoname(request.urn, request.randomSeed)
            news[DEFAULTS] = [name]
        return provider_pb2.CheckResponse(inputs=to_struct(news))

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        mapping = self.mapping(request)
        raw = from_struct(request.news)
        news, olds = plain(raw), plain(from_struct(request.old_inputs))
        state = plain(from_struct(request.olds))
        differences = list(fields.changes(mapping.fields, news, state, olds))
        try:
            differences = mapping.refine(differences, state, news)
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"diffing {request.urn}: {failure}")
        patterns = list(request.ignoreChanges)
        differences = [
            change for change in differences if not fields.is_ignored(change.path, patterns)
        ]
        replaces = [change.path for change in differences if change.replace]
        name = mapping.named_by
        explicit = bool(name) and name in news and name not in raw.get(DEFAULTS, [])
        blocks = mapping.deletes_first or (explicit and news[name] == state.get(name))
        response = provider_pb2.DiffResponse
        return response(
            changes=response.DIFF_SOME if differences else response.DIFF_NONE,
            diffs=sorted({change.name for change in differences}),
            replaces=replaces,
            # A resource with an explicit name blocks its replacement: delete it first.
            deleteBeforeReplace=bool(replaces) and blocks,
            detailedDiff={change.path: detail(change) for change in differences},
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        mapping, raw = self.mapping(request), from_struct(request.properties)
        inputs = plain(raw)
        if request.preview:
            plan = {**fields.planned(mapping.fields, inputs), **mapping.planned(inputs, {})}
            return provider_pb2.CreateResponse(properties=to_struct(with_secrets_of(raw, plan)))
        try:
            made = mapping.create(inputs)
            state = mapping.state(made.id, made.answer, inputs)
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"Error creating {mapping.title}: {failure}")
        return provider_pb2.CreateResponse(
            id=made.id, properties=to_struct(with_secrets_of(raw, state))
        )

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        mapping = self.mapping(request)
        raw, old = from_struct(request.inputs), plain(from_struct(request.properties))
        inputs = plain(raw)
        try:
            answer = mapping.read(request.id, old)
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"Error reading {mapping.title}: {failure}")
        if answer is None:
            return provider_pb2.ReadResponse()
        state = mapping.state(request.id, answer, inputs or old)
        if raw:
            corrected = fields.inputs_after_read(mapping.fields, inputs, state)
            if DEFAULTS in raw:
                corrected[DEFAULTS] = raw[DEFAULTS]
        else:  # an import: the program's inputs are what the cloud has
            corrected = {name: state[name] for name in mapping.fields if name in state}
        return provider_pb2.ReadResponse(
            id=request.id,
            properties=to_struct(with_secrets_of(raw, state)),
            inputs=to_struct(with_secrets_of(raw, corrected)),
        )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        mapping, raw = self.mapping(request), from_struct(request.news)
        inputs, old = plain(raw), plain(from_struct(request.olds))
        if request.preview:
            plan = {**fields.planned(mapping.fields, inputs), **mapping.planned(inputs, old)}
            shown = {**old, **fields.overlaid(plan, old)}
            return provider_pb2.UpdateResponse(properties=to_struct(with_secrets_of(raw, shown)))
        before = plain(from_struct(request.old_inputs))
        patterns = list(request.ignoreChanges)
        changed = {
            change.name
            for change in fields.changes(mapping.fields, inputs, old, before)
            if not fields.is_ignored(change.path, patterns)
        }
        try:
            answer = mapping.update(request.id, old, inputs, changed)
            state = mapping.state(request.id, answer, inputs)
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"Error updating {mapping.title}: {failure}")
        return provider_pb2.UpdateResponse(properties=to_struct(with_secrets_of(raw, state)))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        mapping = self.mapping(request)
        try:
            mapping.delete(request.id, plain(from_struct(request.properties)))
        except CloudError as failure:
            context.abort(grpc.StatusCode.UNKNOWN, f"Error deleting {mapping.title}: {failure}")
        return empty_pb2.Empty()

    def mapping(self, request: Any) -> Resource:
        """Return the mapping for a request about a resource."""
        return MAPPINGS[kind_of(request)](self.rest)


def kind_of(request: Any) -> str:
    """Return `compute/network:Network` for a request about such a resource."""
    return str(request.urn).split("::")[2].split("$")[-1].removeprefix("gcp:")


def autoname(urn: str, seed: bytes) -> str:
    """Return the resource's name in the program with seven hexadecimal digits."""
    return f"{urn.rsplit('::', 1)[1]}-{seed.hex()[:7]}"


def refusals(kind: str, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (input, sentence) for each reason why a resource can't be made."""
    try:
        known = schema.inputs(kind)
    except LookupError as error:
        return [("", str(error))]
    if kind not in MAPPINGS:
        return [("", f"the stand-in has no mapping for {kind}: add one to muster_sandbox/provider")]
    problems = list(schema.faults(known, whole_numbers(inputs)))
    if problems:
        return problems
    mapping = MAPPINGS[kind]
    problems = list(mapping.refusals(inputs))
    if problems:
        return problems
    module = mapping.__module__.replace(".", "/")
    return [
        (
            where,
            f"{kind}: the stand-in maps no input {where}: add it to {module}.py",
        )
        for where in fields.unmapped(mapping.fields, inputs)
    ]


def detail(change: fields.Change) -> provider_pb2.PropertyDiff:
    """Return a change as the engine shows it."""
    difference = provider_pb2.PropertyDiff
    if change.added:
        kind = difference.ADD_REPLACE if change.replace else difference.ADD
    elif change.deleted:
        kind = difference.DELETE_REPLACE if change.replace else difference.DELETE
    else:
        kind = difference.UPDATE_REPLACE if change.replace else difference.UPDATE
    return difference(kind=kind, inputDiff=True)
