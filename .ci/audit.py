"""Says what `pip-audit --format json` found, on standard input. Fails for a vulnerability, not for a network.

To pip-audit, packages that it could not look up have no known vulnerabilities. Here it is said that they were
not audited; the build goes on.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> int:
    try:
        packages: list[dict[str, Any]] = json.load(sys.stdin)["dependencies"]
    except (ValueError, KeyError):
        print("Not audited: pip-audit gave no result; is its source of vulnerabilities reachable?")
        return 0
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    vulnerable = [package for package in packages if package.get("vulns")]
    for package in vulnerable:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            print(f"{package['name']} {package['version']}: {found['id']}, mended in {fixed}")
    print(
        f"Audited {len(packages) - len(skipped)} of {len(packages)} packages: {len(vulnerable)} vulnerable."
    )
    if skipped:
        print(f"Not audited, because the source of vulnerabilities does not have them: {', '.join(skipped)}")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
