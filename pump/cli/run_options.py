"""Run options: those of `pump run`, and the command line they make."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of `pump run`."""

    target: str
    gateway: str | None = attrs.field(default=None, repr=False)
    concurrencies: tuple[tuple[str, int], ...] = ()
    until_empty: bool = False
    health: str | None = None
    control: str | None = None
    telemetry: tuple[str, ...] = ()
    ledger: str | None = None
    log_level: str = "info"
    log_format: str = "auto"
    log_sample: int = 1

    def arguments(self) -> list[str]:
        """The options as a command line, for a process of its own."""
        return [
            "run",
            self.target,
            *(() if self.gateway is None else ("--gateway", self.gateway)),
            *(f"--concurrency={name}={count}" for name, count in self.concurrencies),
            *(("--until-empty",) if self.until_empty else ()),
            *(() if self.health is None else (f"--health={self.health}",)),
            *(() if self.control is None else (f"--control={self.control}",)),
            *(f"--telemetry={each}" for each in self.telemetry),
            *(() if self.ledger is None else (f"--ledger={self.ledger}",)),
            f"--log-level={self.log_level}",
            f"--log-format={self.log_format}",
            f"--log-sample={self.log_sample}",
        ]
