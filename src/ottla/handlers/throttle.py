"""The throttle time of who does not have to wait. What a response carries comes from its `session`."""

from __future__ import annotations

import datetime

from kio.static.primitive import i32Timedelta

NOT_THROTTLED = i32Timedelta.parse(datetime.timedelta(0))
