from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.quotas import QuotaAlteration, QuotaChange, alter_client_quotas
from ottla.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode

ANN = (("user", "ann"),)


def altered(
    *alterations: tuple[Any, dict[str, float | None]], image: MetadataImage | None = None
) -> tuple[MetadataImage, list[ErrorCode | None], int]:
    image = image or MetadataImage()
    deciding = alter_client_quotas(
        image,
        [
            QuotaAlteration(entity, tuple(QuotaChange(*change) for change in changes.items()))
            for entity, changes in alterations
        ],
    )
    while True:
        try:
            next(deciding)
        except StopIteration as stop:
            result = stop.value
            break
    after = image.apply_all(result.records, image.offset + len(result.records), 1)
    codes = [None if error is None else error.code for error in result.response]
    return after, codes, len(result.records)


def test_limits_are_set_changed_and_removed() -> None:
    both = (("user", None), ("client-id", "c"))
    image, codes, count = altered(
        (ANN, {"producer_byte_rate": 10, "request_percentage": 0.5}), (both, {"consumer_byte_rate": 7})
    )
    assert codes == [None, None]
    assert count == 3
    assert dict(image.quotas) == {
        ANN: {"producer_byte_rate": 10, "request_percentage": 0.5},
        (("client-id", "c"), ("user", None)): {"consumer_byte_rate": 7},
    }
    # What is so already is no record, nor is the removal of what is not there.
    image, codes, count = altered(
        (ANN, {"producer_byte_rate": 10, "consumer_byte_rate": None, "request_percentage": None}), image=image
    )
    assert (codes, count) == ([None], 1)
    assert image.quotas[ANN] == {"producer_byte_rate": 10}
    image, _, _ = altered((ANN, {"producer_byte_rate": None}), image=image)
    assert ANN not in image.quotas


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ((), {"producer_byte_rate": 1}),
        ((("group", "g"),), {"producer_byte_rate": 1}),
        ((("user", ""),), {"producer_byte_rate": 1}),
        ((("user", "a"), ("user", "b")), {"producer_byte_rate": 1}),
        ((("user", "a"), ("ip", "10.0.0.1")), {"connection_creation_rate": 1}),
        ((("ip", "not an address"),), {"connection_creation_rate": 1}),
        ((("ip", "10.0.0.1"),), {"producer_byte_rate": 1}),
        ((("ip", "10.0.0.1"),), {"connection_creation_rate": 2**31}),
        (ANN, {"connection_creation_rate": 1}),
        (ANN, {"producer_byte_rate": 0}),
        (ANN, {"producer_byte_rate": float("nan")}),
        (ANN, {"producer_byte_rate": 1.5}),
        (ANN, {"nothing": 1}),
    ],
)
def test_what_makes_no_sense_is_refused_alone(entity: Any, changes: dict[str, float | None]) -> None:
    other = (("user", "ben"),)
    image, codes, _ = altered((entity, changes), (other, {"consumer_byte_rate": 5}))
    assert codes == [ErrorCode.invalid_request, None]
    assert list(image.quotas) == [other]


def test_an_entity_is_named_once() -> None:
    _, codes, count = altered((ANN, {"consumer_byte_rate": 5}), (ANN, {"producer_byte_rate": 5}))
    assert (codes, count) == ([ErrorCode.invalid_request] * 2, 0)
