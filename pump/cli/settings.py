"""Settings: the environment, read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs

from ..secret import Secret, optional_secret

GATEWAY = "PUMP_GATEWAY"
LOG_LEVEL = "PUMP_LOG_LEVEL"
LOG_FORMAT = "PUMP_LOG_FORMAT"
LOG_SAMPLE = "PUMP_LOG_SAMPLE"
TELEMETRY = "PUMP_TELEMETRY"
HEALTH = "PUMP_HEALTH"
CONTROL = "PUMP_CONTROL"
# AWS's own names: a client of `pump local` has the same in its environment.
AWS_ACCESS_KEY_ID = "AWS_ACCESS_KEY_ID"
AWS_SECRET_ACCESS_KEY = "AWS_SECRET_ACCESS_KEY"


@attrs.frozen(kw_only=True)
class EnvironmentSettings:
    """What the environment says; an option on the command line stands above it."""

    gateway: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    """A URL, which may have a password in it."""
    log_level: str | None = None
    log_format: str | None = None
    log_sample: str | None = None
    telemetry: str | None = None
    health: str | None = None
    control: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: Secret | None = attrs.field(
        default=None, converter=optional_secret, repr=False
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> EnvironmentSettings:
        """Read the variables of ours; an empty one counts as absent."""
        values = os.environ if environment is None else environment
        return cls(
            gateway=values.get(GATEWAY) or None,
            log_level=values.get(LOG_LEVEL) or None,
            log_format=values.get(LOG_FORMAT) or None,
            log_sample=values.get(LOG_SAMPLE) or None,
            telemetry=values.get(TELEMETRY) or None,
            health=values.get(HEALTH) or None,
            control=values.get(CONTROL) or None,
            aws_access_key_id=values.get(AWS_ACCESS_KEY_ID) or None,
            aws_secret_access_key=values.get(AWS_SECRET_ACCESS_KEY) or None,
        )
