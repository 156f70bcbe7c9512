"""Source: the format "pump" of Spark's readers and writers."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ...errors import ConfigurationError
from .columns import NAMES
from .options import sink_options, snapshot_options, stream_options
from .schema import SCHEMA
from .sink import PumpStreamWriter, PumpWriter
from .snapshot import PumpReader
from .stream import PumpStreamReader


class PumpSource(DataSource):
    """Queues as data, whatever machines Spark runs on."""

    is_one_machine: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        return "pump"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> PumpReader:
        _check(schema)
        return PumpReader(snapshot_options(self.options, is_one_machine=self.is_one_machine))

    # Spark finds out by the argument's name that this reader has partitions.
    def streamReader(self, schema: StructType) -> PumpStreamReader:  # noqa: N802 Spark's name
        _check(schema)
        return PumpStreamReader(stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> PumpWriter:
        options = sink_options(self.options, is_one_machine=self.is_one_machine)
        return PumpWriter(options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 Spark's name
        self, schema: StructType, overwrite: bool
    ) -> PumpStreamWriter:
        options = sink_options(self.options, is_one_machine=self.is_one_machine)
        return PumpStreamWriter(options, schema, overwrite=overwrite)


class LocalPumpSource(PumpSource):
    """The same for a Spark whose workers are all on this machine."""

    is_one_machine: ClassVar[bool] = True


def _check(schema: StructType) -> None:
    if schema != SCHEMA:
        raise ConfigurationError(
            "schema",
            schema.simpleString(),
            f"the columns are given: {', '.join(NAMES)}; select from them after load()",
        )
