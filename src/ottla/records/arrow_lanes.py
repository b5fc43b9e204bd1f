"""Cuts large batches into lanes, so that the hop from record to record goes on in many places at once.

Where a record begins is only known from the one before it. But records are numbered, and a place in the
middle of a batch that reads like a record, whose length leads to the record with the next number, is nearly
always one. That is a guess; walking the lanes proves it, since each has to end exactly where the next begins,
after exactly as many records as lie between their numbers.
"""

from __future__ import annotations

import numpy as np

from ottla.records.arrow_fields import Bytes, Numbers, Positions, read_varints

# Few enough for hundreds of lanes side by side, many enough that looking for cuts costs little of a walk.
RECORDS_PER_LANE = 96
# How far to look for a record, in average records, and in bytes.
_WINDOW_RECORDS = 3
_WINDOW_BYTES_MAX = 4096


def cut_into_lanes(
    data: Bytes, begins: Positions, ends: Positions, counts: Numbers
) -> tuple[Positions, Numbers]:
    """Where each lane ends and how many records it has, for batches whose records are numbered 0, 1, 2, …"""
    lanes = np.maximum(counts // RECORDS_PER_LANE, 1)
    batch = np.repeat(np.arange(len(counts)), lanes - 1)
    if len(batch):
        nth = np.arange(1, len(batch) + 1) - np.repeat(np.cumsum(lanes - 1) - (lanes - 1), lanes - 1)
        targets = begins[batch] + (ends - begins)[batch].astype(np.int64) * nth // lanes[batch]
        record_bytes = int(((ends - begins) / counts).max())
        window = min(_WINDOW_RECORDS * record_bytes, _WINDOW_BYTES_MAX)
        cut, at, number = _find_records(data, targets.astype(np.int32), window, ends[batch], counts[batch])
        batch = batch[cut]
    else:
        at, number = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
    before = np.cumsum(counts) - counts
    lane_ends = np.concatenate([at, ends]).astype(np.int32)
    numbers = np.concatenate([before[batch] + number, before + counts])
    order = np.argsort(lane_ends, kind="stable")
    return lane_ends[order], np.diff(numbers[order], prepend=0).astype(np.int32)


def _find_records(
    data: Bytes, targets: Positions, window: int, ends: Positions, counts: Numbers
) -> tuple[Numbers, Positions, Numbers]:
    """The first record behind each target: index of the target, position and number of the record."""
    windows: Numbers = targets[:, None] + np.arange(window, dtype=np.int32)
    # The byte after a record's length is its attributes, of which there are none.
    cut, column = np.nonzero(data.take(windows, mode="clip") == 0)
    attributes = windows[cut, column]
    goes_on = data.take(attributes - 2, mode="clip") >= 0x80
    at = attributes - 1 - goes_on - (goes_on & (data.take(attributes - 3, mode="clip") >= 0x80))
    length, after = read_varints(data, at)
    following = after + length
    fits = (after == attributes) & (length > 0) & (following < ends[cut])
    cut, at, attributes, following = cut[fits], at[fits], attributes[fits], following[fits]
    number = _number(data, attributes)
    _, after = read_varints(data, following)
    fits = (number > 0) & (number < counts[cut] - 1) & (data.take(after, mode="clip") == 0)
    fits &= _number(data, after) == number + 1
    cut, first = np.unique(cut[fits], return_index=True)
    return cut, at[fits][first].astype(np.int32), number[fits][first]


def _number(data: Bytes, attributes: Positions) -> Numbers:
    """Of the records whose attributes are there: it follows the timestamp."""
    _, at = read_varints(data, attributes + 1)
    return read_varints(data, at)[0]
