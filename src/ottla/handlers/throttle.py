"""The throttle time every response carries. Quotas do not exist yet, so nobody has to wait."""

from __future__ import annotations

import datetime

from kio.static.primitive import i32Timedelta

NOT_THROTTLED = i32Timedelta.parse(datetime.timedelta(0))
