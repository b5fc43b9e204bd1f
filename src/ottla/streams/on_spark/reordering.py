"""The order in which records of a repartition topic are worked on, where several tasks have written it.

Each writes by itself what it has made of a micro-batch, and one stands behind the other in a partition. After
a pause that may be hours each: windows that the first one's records have closed would turn away the second's
as late. So records are taken by time; those of one key stay in the order they have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def by_time(keys: pa.Array, times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Places of records that are given in the order of their offsets; none if that is their order by time.

    A record counts as no older than those of its key before it.
    """
    if len(times_ms) < 2 or bool((np.diff(times_ms) >= 0).all()):
        return None
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64) + 1
    ranks = np.unique(times_ms, return_inverse=True)[1].astype(np.int64)
    by_key = np.argsort(codes, kind="stable")
    # Each key's ranks lie above those of all keys before it, so that one pass finds the latest within each.
    bases = codes[by_key] * len(ranks)
    effective = np.empty_like(ranks)
    effective[by_key] = np.maximum.accumulate(ranks[by_key] + bases) - bases
    return np.argsort(effective, kind="stable")
