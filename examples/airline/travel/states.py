"""What can become of a passenger who needs another flight."""

WAITING, OFFERED, EXPIRED = "WAITING", "OFFERED", "EXPIRED"
REBOOKED, DECLINED, UNREACHED, RESOLVED = "REBOOKED", "DECLINED", "UNREACHED", "RESOLVED"
IN_LINE = (WAITING, EXPIRED)
"""Nobody in these states has a seat, and all of them are offered the next one there is."""
