"""ApiVersions, versions 0 to 4: which APIs in which versions this broker accepts, and its features.

Exactly the registry is advertised, with one exception: Produce from version 0 although only 3 and later are
accepted, because librdkafka infers the broker's age from it (KAFKA-18659). A version we do not know is
answered, not refused: version 0 of the response with UNSUPPORTED_VERSION and the range of ApiVersions itself,
so that the client can ask again (KIP-511).

v1 throttle time · v3 flexible, client software name and version (validated, KIP-511), features (KIP-584)
v4 also features whose lowest level is 0 (older clients cannot read them, KAFKA-17492)
"""

from __future__ import annotations

import re
from functools import cache

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.static.primitive import i16, i32Timedelta, i64

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import CONTROLLER_REGISTRY, REGISTRY, handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.metadata.features import FEATURES, KRAFT_VERSION
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import codec

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return _failure(ErrorCode.invalid_request, (), context.session.throttle_time)
        context.session.identify_software(name, version)
    image = broker.metadata.image
    finalized = {**image.features, KRAFT_VERSION: broker.quorum.kraft_version}
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=_advertised(context.session.served is CONTROLLER_REGISTRY),
        throttle_time=context.session.throttle_time,
        supported_features=tuple(
            SupportedFeatureKey(
                name=feature.name, min_version=i16(feature.level_min), max_version=i16(feature.level_max)
            )
            for feature in FEATURES
            if feature.level_min > 0 or context.version >= 4
        ),
        finalized_features_epoch=i64(image.offset),
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=i16(level), min_version_level=i16(level))
            for name, level in sorted(finalized.items())
            if level > 0
        ),
    )


@cache
def unsupported_version_response() -> bytes:
    """The body that answers an ApiVersions request of an unknown version, whatever that version is."""
    own = tuple(entry for entry in _advertised(False) if int(entry.api_key) == ApiKey.API_VERSIONS)
    return codec(ApiKey.API_VERSIONS, 0).write(_failure(ErrorCode.unsupported_version, own, NOT_THROTTLED))


def _failure(
    error: ErrorCode, api_keys: tuple[ApiVersion, ...], throttle_time: i32Timedelta
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error, api_keys=api_keys, throttle_time=throttle_time)


@cache
def _advertised(to_controllers: bool) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(
            api_key=i16(key),
            min_version=i16(0 if key == ApiKey.PRODUCE else api.min_version),
            max_version=i16(api.max_version),
        )
        for key, api in sorted((CONTROLLER_REGISTRY if to_controllers else REGISTRY).items())
    )
