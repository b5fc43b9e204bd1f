"""Who signs tokens for OAUTHBEARER, with the file of public keys that a broker checks them by."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from joserfc.jwk import KeySet, RSAKey
from joserfc.jws import serialize_compact

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
TOKEN_SECONDS = 600


class Issuer:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = RSAKey.generate_key(2048, {"kid": "first"})
        self.publish(self.key)

    def publish(self, *keys: Any) -> None:
        self.path.write_text(json.dumps(KeySet(list(keys)).as_dict(private=False)))

    @property
    def settings(self) -> dict[str, str]:
        """Of a broker that trusts this issuer."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.path}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": "1",
        }

    def token(self, key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        key = key or self.key
        now = int(time.time())
        said = {"sub": "dora", "iss": ISSUER, "aud": [AUDIENCE], "iat": now, "exp": now + TOKEN_SECONDS}
        said |= claims
        header = {"alg": algorithm, **({"kid": key.kid} if key.kid else {})}
        text = json.dumps({k: v for k, v in said.items() if v is not None})
        return serialize_compact(header, text, key, [algorithm])

    def forged_token(self) -> str:
        """Says the same and is signed by somebody else, who calls its key the same."""
        return self.token(RSAKey.generate_key(2048, {"kid": self.key.kid}))
