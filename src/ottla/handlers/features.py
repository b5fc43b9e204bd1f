"""UpdateFeatures, versions 0 to 2: levels of features are raised or lowered, all of a request or none.

v1 upgrade type instead of a flag that allows downgrades, validation only (KIP-778) · v2 one error for the
whole request instead of one per feature
"""

from __future__ import annotations

from kio.schema.update_features import v1
from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from ottla.controller.features import FeatureUpdate
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.registry import handles
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, KafkaError

FIRST_WITHOUT_RESULTS = 2
_NONE_UPDATED = "The update failed for all features since the following feature had an error: "


def _refused(
    context: RequestContext, request: UpdateFeaturesRequest, error: KafkaError
) -> v1.response.UpdateFeaturesResponse:
    return v1.response.UpdateFeaturesResponse(
        throttle_time=context.session.throttle_time,
        error_code=error.code,
        error_message=error_message(error),
        results=(),
    )


@handles(ApiKey.UPDATE_FEATURES, _refused)
async def update_features(
    broker: Broker, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | v1.response.UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    ]
    error: KafkaError | None = None
    try:
        if len({update.name for update in updates}) < len(updates):
            raise InvalidRequest("A feature is named more than once; name each once.")
        await broker.controller.update_features(updates, validate_only=request.validate_only)
    except KafkaError as refused:
        error = refused
    message = error_message(error)
    if message is not None:
        message = f"{_NONE_UPDATED}{message}"
    if context.version < FIRST_WITHOUT_RESULTS:
        # Version 0 has the same answer. Where nothing was done there is nothing to say of single features.
        return v1.response.UpdateFeaturesResponse(
            throttle_time=context.session.throttle_time,
            error_code=error_code(error),
            error_message=message,
            results=() if error is not None else tuple(map(_done, updates)),
        )
    return UpdateFeaturesResponse(
        throttle_time=context.session.throttle_time, error_code=error_code(error), error_message=message
    )


def _done(update: FeatureUpdate) -> v1.response.UpdatableFeatureResult:
    return v1.response.UpdatableFeatureResult(
        feature=update.name, error_code=ErrorCode.none, error_message=None
    )
